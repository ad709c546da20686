"""Tasks of programming contests: whole programs that read and print, or functions that are called.

Fields as in APPS (`question`, `input_output`, `solutions`) and in LiveCodeBench
(`question_content`, `public_test_cases`, `private_test_cases`, `metadata`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from selfdistill_cli.envs.code.programs import stands_alone
from selfdistill_cli.envs.code.readers.functions import KINDS, is_name
from selfdistill_cli.envs.code.readers.parsed import Parsed
from selfdistill_cli.envs.code.readers.python_fields import parse
from selfdistill_cli.envs.json_lines import Line
from selfdistill_cli.sandbox.inside import wire

PAIRS = 'JSON with "inputs" and "outputs", two lists of the same length'
CASES = 'a JSON list of {"input": text, "output": text, "testtype": "stdin" or "functional"}'
ENCODED = re.compile(r"[A-Za-z0-9+/=\s]+")
CONVERT = (
    f"{CASES}; unpickling runs code of whoever made the file, so convert it once where you trust "
    "it: json.loads(pickle.loads(zlib.decompress(base64.b64decode(text))))"
)
WHOLE = "Write a program that reads standard input and prints the answer to standard output."


def is_contest(line: Line) -> bool:
    """Whether the line has the fields of APPS or of LiveCodeBench."""
    return any(map(line.has, ("input_output", "public_test_cases", "private_test_cases")))


def read(line: Line) -> Parsed:
    """Return what the line says; raises DataError."""
    forms = [n for n in ("input_output", "public_test_cases", *KINDS) if line.has(n)]
    if len(forms) > 1:
        raise line.error(forms[0], f"also {' and '.join(forms[1:])}", "one kind of tests")
    tests = _apps(line) if line.has("input_output") else _livecodebench(line)
    starter = line.text("starter_code", required=False) or ""
    parts = [_question(line), *([starter.rstrip()] if starter.strip() else [])]
    name = tests.get("entry_point")
    if name is None:
        parts.append(WHOLE)
    elif name not in starter:
        parts.append(f"Name the function {name}.")
    return Parsed(prompt="\n\n".join(parts), answer=_reference(line), meta=tests)


def _question(line: Line) -> str:
    names = ("question", "question_content", "prompt", "text")
    text = (line.text(*names) or "").strip()
    if not text:
        name = next(name for name in names if line.has(name))
        raise line.error(name, "no words", "the description of the task")
    return text


def _reference(line: Line) -> str | None:
    """Return the first solution that is Python 3, None if there is none."""
    answer = line.text("canonical_solution", "code", required=False)
    if answer is not None:
        parse(line, "canonical_solution" if line.has("canonical_solution") else "code", answer)
        return answer
    expected = "a JSON list of programs"
    solutions = line.json("solutions", expected)
    solutions = [] if solutions is None else solutions
    if not isinstance(solutions, list) or not all(isinstance(text, str) for text in solutions):
        raise line.error("solutions", f"{solutions!r:.60}", expected)
    return next(filter(stands_alone, solutions), None)


def _apps(line: Line) -> dict[str, Any]:
    found = line.json("input_output", PAIRS)
    if not isinstance(found, dict):
        raise line.error("input_output", f"{found!r:.60}", PAIRS)
    inputs, outputs = (_rows(line, found, name) for name in ("inputs", "outputs"))
    if len(inputs) != len(outputs):
        both = f"{len(inputs)} inputs and {len(outputs)} outputs"
        raise line.error("input_output", both, PAIRS)
    name = found.get("fn_name")
    if name is None:
        where = "input_output.inputs", "input_output.outputs"
        return {
            "stdin": [_text(line, where[0], row) for row in inputs],
            "stdout": [_text(line, where[1], row) for row in outputs],
        }
    # Many files put each result into a list of its own.
    wrapped = all(isinstance(row, list) and len(row) == 1 for row in outputs)
    expected = [row[0] for row in outputs] if wrapped else outputs
    return {**_functional(line, "input_output", name, inputs, expected), "wrapped": wrapped}


def _rows(line: Line, found: dict[str, Any], name: str) -> list[Any]:
    rows = found.get(name)
    if not isinstance(rows, list) or not rows:
        raise line.error(f"input_output.{name}", f"{rows!r:.60}", f"a list; {PAIRS}")
    return rows


def _text(line: Line, name: str, row: Any) -> str:
    """Return text for a stream: a string, or a list of lines."""
    if isinstance(row, list) and all(isinstance(part, str) for part in row):
        row = "\n".join(row)
    if not isinstance(row, str):
        raise line.error(name, f"{row!r:.60}", "a string, or a list of lines")
    return row


def _functional(
    line: Line, field: str, name: Any, inputs: Sequence[Any], expected: Sequence[Any]
) -> dict[str, Any]:
    if not isinstance(name, str) or not is_name(name):
        raise line.error(f"{field}: name of the function", f"{name!r:.60}", "a Python name")
    for i, (row, result) in enumerate(zip(inputs, expected, strict=True)):
        if not isinstance(row, list):
            raise line.error(f"{field}: input {i}", f"{row!r:.60}", "a list of arguments")
        try:
            wire.encode([row, result])
        except wire.Unsendable as error:
            limit = f"values nested less than {wire.MAX_DEPTH} deep"
            raise line.error(f"{field}: test {i}", str(error), limit) from None
    return {
        "entry_point": name,
        "owner": "Solution",
        "calls": list(inputs),
        "expected": list(expected),
    }


def _livecodebench(line: Line) -> dict[str, Any]:
    cases = [*_cases(line, "public_test_cases"), *_cases(line, "private_test_cases")]
    if not cases:
        raise line.error("public_test_cases", "no test", CASES)
    kinds = {case["testtype"] for case in cases}
    if len(kinds) > 1:
        raise line.error("public_test_cases", f"{' and '.join(sorted(kinds))} tests", "one kind")
    if kinds == {"stdin"}:
        return {
            "stdin": [case["input"] for case in cases],
            "stdout": [case["output"] for case in cases],
        }
    about = line.json("metadata", 'JSON with "func_name"')
    name = about.get("func_name") if isinstance(about, dict) else None
    if name is None:
        raise line.error("metadata", f"{about!r:.60}", 'JSON with "func_name"')
    inputs = [
        [_value(line, f"input of test {i}", part) for part in case["input"].split("\n") if part]
        for i, case in enumerate(cases)
    ]
    expected = [_value(line, f"output of test {i}", case["output"]) for i, case in enumerate(cases)]
    return _functional(line, "metadata", name, inputs, expected)


def _cases(line: Line, field: str) -> list[dict[str, str]]:
    value = line.record.get(field)
    # Python's pickle inside zlib inside base64, which starts no JSON list.
    if isinstance(value, str) and value.strip() and ENCODED.fullmatch(value):
        raise line.error(field, f"encoded text ({value[:12]}...)", CONVERT)
    cases = line.json(field, CASES)
    cases = [] if cases is None else cases
    if not isinstance(cases, list):
        raise line.error(field, f"{cases!r:.60}", CASES)
    for i, case in enumerate(cases):
        good = isinstance(case, dict) and all(
            isinstance(case.get(name), str) for name in ("input", "output", "testtype")
        )
        if not good or case["testtype"] not in ("stdin", "functional"):
            raise line.error(f"{field}[{i}]", f"{case!r:.60}", CASES)
    return cases


def _value(line: Line, name: str, text: str) -> Any:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise line.error(
            "public_test_cases", f"{name}: {text!r:.60}, not JSON ({error})", "one value a line"
        ) from None
    line.check_text("public_test_cases", found)
    return found
