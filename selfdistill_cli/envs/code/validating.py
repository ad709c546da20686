"""Do the tests of a task accept its reference, and do they reject what is obviously wrong?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from selfdistill_cli.core.errors import DataError
from selfdistill_cli.core.findings import Finding, Problem
from selfdistill_cli.core.types import Task
from selfdistill_cli.envs.code import grading, references
from selfdistill_cli.sandbox.sandbox import Sandbox

BATCH = 64
Numbered = tuple[int | None, Task]


def stub(task: Task) -> str:
    """Return a program that does nothing: a function that returns None, or one that prints none."""
    name = task.meta.get("entry_point")
    return "pass\n" if name is None else f"def {name}(*args, **kwargs):\n    return None\n"


def findings(sandbox: Sandbox, tasks: Sequence[Numbered]) -> Iterator[Finding]:
    """Yield one finding per task; references and stubs run in the sandbox, batch by batch."""
    for start in range(0, len(tasks), BATCH):
        found: dict[int, Finding] = {}
        whole: list[tuple[int, int | None, Task]] = []
        for i, (line, task) in enumerate(tasks[start : start + BATCH]):
            try:
                (complete,) = references.with_expected(sandbox, [task], None)
                whole.append((i, line, complete))
            except DataError as error:
                found[i] = Finding(
                    task_id=task.id, line=line, problem="reference_fails", message=str(error)
                )
        for i, finding in _of_batch(sandbox, whole):
            found[i] = finding
        yield from (found[i] for i in sorted(found))


def _of_batch(
    sandbox: Sandbox, whole: Sequence[tuple[int, int | None, Task]]
) -> Iterator[tuple[int, Finding]]:
    tasks = [task for _, _, task in whole]
    answered = [task for task in tasks if task.answer is not None]
    graded = grading.grade(sandbox, answered, [task.answer for task in answered])
    references_of = dict(zip((task.id for task in answered), graded, strict=True))
    stubs = grading.grade(sandbox, tasks, [stub(task) for task in tasks])
    for (i, line, task), of_stub in zip(whole, stubs, strict=True):
        problem, outcome = judge(references_of.get(task.id), of_stub)
        failed = [test for test in outcome["tests"] if test["status"] != "passed"]
        first = failed[0] if failed and problem == "reference_fails" else {}
        yield (
            i,
            Finding(
                task_id=task.id,
                line=line,
                problem=problem,
                status="test_error" if problem == "tests_fail" else first.get("status", ""),
                message=outcome["error"] or first.get("message", ""),
            ),
        )


def judge(
    reference: Mapping[str, Any] | None, of_stub: Mapping[str, Any]
) -> tuple[Problem, Mapping[str, Any]]:
    """Return what is wrong, and the outcome that shows it."""
    for outcome in (reference, of_stub):
        if outcome is not None and outcome["status"] == "test_error":
            return "tests_fail", outcome
    if reference is not None and reference["passed"] < reference["total"]:
        return "reference_fails", reference
    if of_stub["passed"] == of_stub["total"]:
        return "proves_nothing", of_stub
    return ("no_reference", {**of_stub, "error": ""}) if reference is None else ("", reference)
