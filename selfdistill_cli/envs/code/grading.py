"""From an answer to an outcome: find the program, plan its tests, compare, describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from selfdistill_cli.core.texts import encodable
from selfdistill_cli.core.types import Task
from selfdistill_cli.envs.code.comparing import ABSOLUTE, RELATIVE, equal, same_output
from selfdistill_cli.envs.code.programs import complete_program, extract_program, with_method
from selfdistill_cli.sandbox.jobs import (
    CallJob,
    CallReport,
    CallResult,
    ProgramJob,
    ProgramReport,
    StdioJob,
    StdioReport,
)
from selfdistill_cli.sandbox.sandbox import Sandbox

Outcome = dict[str, Any]
MAX_SHOWN = 80


def grade(sandbox: Sandbox, tasks: Sequence[Task], actions: Sequence[str]) -> list[Outcome]:
    """Run the programs in the answers against their tasks' tests; one outcome per answer.

    An outcome is JSON: program, status (of the whole: `ok`, or what ended it), compiled, passed,
    total, error, tests [{name, status, message}].
    """
    # A lone surrogate is in no Python source, and no file or tokenizer takes it.
    programs = [extract_program(encodable(action)) for action in actions]
    outcomes: dict[int, Outcome] = {}
    for make_job, run, outcome_of, indices in (
        (call_job, sandbox.run_calls, outcome_of_calls, _those_with("calls", tasks)),
        (stdio_job, sandbox.run_stdio, outcome_of_stdio, _those_with("stdin", tasks)),
        (program_job, sandbox.run_programs, outcome_of_tests, _those_with("tests", tasks)),
    ):
        jobs: list[Any] = [make_job(tasks[i].meta, programs[i]) for i in indices]
        for i, report in zip(indices, run(jobs) if jobs else (), strict=True):
            outcomes[i] = outcome_of(tasks[i].meta, programs[i], report)  # type: ignore[arg-type]
    return [outcomes[i] for i in range(len(tasks))]


def _those_with(tests: str, tasks: Sequence[Task]) -> list[int]:
    return [i for i, task in enumerate(tasks) if tests in task.meta]


def call_job(meta: Mapping[str, Any], program: str) -> CallJob:
    """Return the job of a task with inputs and expected values. Only the inputs go along."""
    entry_point = meta["entry_point"]
    program = complete_program(program, entry_point, meta.get("prefix", ""))
    if "owner" in meta:
        program = with_method(program, meta["owner"], entry_point)
    return CallJob(
        program=program,
        entry_point=entry_point,
        calls=tuple(tuple(call) for call in meta["calls"]),
    )


def program_job(meta: Mapping[str, Any], program: str) -> ProgramJob:
    """Return the job of a task whose tests are code."""
    entry_point = meta["entry_point"]
    return ProgramJob(
        program=complete_program(program, entry_point, meta.get("prefix", "")),
        entry_point=entry_point,
        setup=meta["setup"],
        tests=tuple(meta["tests"]),
    )


def stdio_job(meta: Mapping[str, Any], program: str) -> StdioJob:
    """Return the job of a task for whole programs. Only the inputs go along."""
    return StdioJob(program=program, inputs=tuple(meta["stdin"]))


def outcome_of_calls(meta: Mapping[str, Any], program: str, report: CallReport) -> Outcome:
    """Compare what the calls returned with what was expected, here in the trusted process."""
    tests: list[dict[str, str]] = []
    tolerance = meta.get("atol", ABSOLUTE), meta.get("rtol", RELATIVE)
    for call, expected, result in zip(meta["calls"], meta["expected"], report.results, strict=True):
        name = f"{meta['entry_point']}({', '.join(shown(argument) for argument in call)})"
        if meta.get("wrapped") and result.status == "returned" and equal(result.value, [expected]):
            expected = [expected]
        tests.append(judge(name, result, expected, tolerance))
    return _outcome(program, tests, report.status, report.message)


def outcome_of_stdio(meta: Mapping[str, Any], program: str, report: StdioReport) -> Outcome:
    """Compare what was printed with what was expected, here in the trusted process."""
    tests: list[dict[str, str]] = []
    for given, expected, result in zip(meta["stdin"], meta["stdout"], report.results, strict=True):
        name = f"input {shown(given)}"
        status, message = result.status, f"{name}: {result.message}"
        if status == "finished":
            good = same_output(result.output, expected)
            status = "passed" if good else "failed"
            message = f"{name} printed {shown(result.output)}, expected {shown(expected)}"
        tests.append(
            {"name": name, "status": status, "message": "" if status == "passed" else message}
        )
    return _outcome(program, tests, report.status, report.message)


def outcome_of_tests(meta: Mapping[str, Any], program: str, report: ProgramReport) -> Outcome:
    """Return the outcome of tests that are code."""
    names = [short(test.strip()) for test in meta["tests"]]
    tests = [
        {"name": name, "status": result.status, "message": result.message}
        for name, result in zip(names, report.results, strict=True)
    ]
    return _outcome(program, tests, report.status, report.message)


def _outcome(program: str, tests: list[dict[str, str]], status: str, error: str) -> Outcome:
    return {
        "program": program,
        "status": status,
        "compiled": status != "compile_error",
        "passed": sum(test["status"] == "passed" for test in tests),
        "total": len(tests),
        "error": "" if status == "ok" else error,
        "tests": tests,
    }


def judge(
    name: str,
    result: CallResult,
    expected: Any,
    tolerance: tuple[float, float] = (ABSOLUTE, RELATIVE),
) -> dict[str, str]:
    """Return one test's name, status and a message such as `f(1) returned 3, expected 5`."""
    if result.status == "returned":
        if equal(result.value, expected, *tolerance):
            return {"name": name, "status": "passed", "message": ""}
        message = f"{name} returned {shown(result.value)}, expected {shown(expected)}"
        return {"name": name, "status": "failed", "message": message}
    verb = " raised " if result.status == "raised" else ": "
    return {"name": name, "status": result.status, "message": f"{name}{verb}{result.message}"}


def first_failure(outcome: Mapping[str, Any]) -> str | None:
    """Return what went wrong first, for feedback; None if everything passed."""
    failed = (test for test in outcome["tests"] if test["status"] != "passed")
    return next((test["message"] for test in failed), None)


def shown(value: Any) -> str:
    """Return `repr`, cut short in the middle."""
    try:
        return short(repr(value))
    except ValueError:  # an integer with more digits than Python prints
        return "a number with thousands of digits"


def short(text: str) -> str:
    """Return the text, with an ellipsis in its middle if it is long."""
    half = (MAX_SHOWN - 3) // 2
    return text if len(text) <= MAX_SHOWN else f"{text[:half]}...{text[-half:]}"
