"""Tasks that ask for a function, with the fields of HumanEval, of MBPP, or with plain calls."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Iterator
from typing import Any

from selfdistill_cli.core.errors import did_you_mean
from selfdistill_cli.envs.code.programs import complete_program, stands_alone
from selfdistill_cli.envs.code.readers import evalplus, own_name
from selfdistill_cli.envs.code.readers.parsed import Parsed
from selfdistill_cli.envs.code.readers.python_fields import parse
from selfdistill_cli.envs.json_lines import Line
from selfdistill_cli.sandbox.inside import wire

KINDS = ("test", "test_list", "calls", "base_input")
FORMS = (
    'one of "test" (a program that defines check(candidate), as in HumanEval), "test_list" (a '
    'list of asserts, as in MBPP), "calls" (a list of {"args": [...], "expected": ...}), '
    '"base_input" and "plus_input" (inputs, as in EvalPlus), "input_output" (as in APPS) or '
    '"public_test_cases" (as in LiveCodeBench)'
)


def read(line: Line) -> Parsed:
    """Return what the line says; raises DataError."""
    prompt = line.text("prompt", "text") or ""
    if not prompt.strip():
        name = "prompt" if "prompt" in line.record else "text"
        raise line.error(name, "no words", "the description of the task")
    entry_point = _entry_point(line)
    prefix = prompt if re.search(rf"^def\s+{re.escape(entry_point)}\b", prompt, re.M) else ""
    answer = line.text("canonical_solution", "code", required=False)
    if answer is not None:
        answer = complete_program(answer, entry_point, prefix)
        parse(line, "canonical_solution" if "code" not in line.record else "code", answer)
    tests = _tests(line, entry_point, prefix, answer)
    if entry_point not in prompt:
        prompt = f"{prompt.rstrip()}\nName the function {entry_point}."
    meta = {"entry_point": entry_point, "prefix": prefix, **tests}
    return Parsed(prompt=prompt, answer=answer, meta=meta)


def _tests(line: Line, entry_point: str, prefix: str, answer: str | None) -> dict[str, Any]:
    """Return the part of `meta` that holds the tests."""
    given = [name for name in KINDS if line.has(name)]
    if set(given) == {"test", "test_list"} and evalplus.is_harness(line.record["test"]):
        given = ["test"]  # the shorter list is part of it
    if len(given) != 1:
        near = "" if given else did_you_mean("test_list", line.record)
        found = " and ".join(given) or f"none{near}"
        raise line.error("test", found, FORMS)
    if given == ["calls"]:
        return _calls(line)
    if given == ["base_input"]:
        return evalplus.inputs(line, answer)
    if given == ["test_list"]:
        return _asserts(line)
    return _program(line, entry_point, prefix, answer)


def _asserts(line: Line) -> dict[str, Any]:
    tests = line.texts("test_list")
    if not tests:
        raise line.error("test_list", "an empty list", "at least one assert")
    for test in tests:
        parse(line, "test_list", test)
    setup = [*line.texts("test_imports"), line.text("test_setup_code", required=False) or ""]
    parse(line, "test_setup_code", "\n".join(setup))
    return {"setup": "\n".join(setup), "tests": tests}


def _program(line: Line, entry_point: str, prefix: str, answer: str | None) -> dict[str, Any]:
    test = line.text("test") or ""
    parse(line, "test", test)
    # Tests may use helpers that the prompt defines next to the function.
    helpers = f"{prefix}\n\n" if stands_alone(prefix) else ""
    test, standin = evalplus.without_numpy(line, test)
    tree = parse(line, "test", test)
    checks = any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in tree.body)
    if not checks:
        return {"setup": helpers + standin, "tests": [test]}
    test, reference = own_name.means_the_reference(test, entry_point, answer)
    return {"setup": reference + helpers + standin + test, "tests": ["check(candidate)"]}


def _calls(line: Line) -> dict[str, Any]:
    calls, expected = [], []
    record = line.record["calls"]
    if not isinstance(record, list) or not record:
        raise line.error("calls", f"{record!r:.60}", 'a list of {"args": [...], "expected": ...}')
    for i, call in enumerate(record):
        good = isinstance(call, dict) and isinstance(call.get("args"), list) and "expected" in call
        if not good:
            raise line.error(f"calls[{i}]", f"{call!r:.60}", '{"args": [...], "expected": ...}')
        for name in ("args", "expected"):
            try:
                wire.encode(call[name])
            except wire.Unsendable as error:
                limit = f"values nested at most {wire.MAX_DEPTH} deep"
                raise line.error(f"calls[{i}].{name}", str(error), limit) from None
        calls.append(call["args"])
        expected.append(call["expected"])
    return {"calls": calls, "expected": expected, **evalplus.tolerance(line)}


def _entry_point(line: Line) -> str:
    """Return `entry_point`, or the function that the first assert calls."""
    if line.record.get("test_list") == [] and not line.has("entry_point"):
        raise line.error("test_list", "an empty list", "at least one assert")
    name = line.text("entry_point", required=not line.record.get("test_list"))
    if name is None:
        name = next(_called(parse(line, "test_list", "\n".join(line.texts("test_list")))), None)
        if name is None:
            raise line.error("test_list", "no call of a function", "asserts that call one")
    if not is_name(name):
        raise line.error("entry_point", f"'{name}'", "the name of a function")
    return name


def is_name(text: str) -> bool:
    """Whether a function can have this name."""
    return text.isidentifier() and not keyword.iskeyword(text)


def _called(tree: ast.Module) -> Iterator[str]:
    """Yield names of called functions that are not builtins, outermost first."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        if not hasattr(builtins, node.func.id):
            yield node.func.id
