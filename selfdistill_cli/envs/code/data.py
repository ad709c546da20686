"""The user's own tasks: JSON lines with the fields of HumanEval, of MBPP, or with plain calls."""

from __future__ import annotations

import ast
import builtins
import gzip
import hashlib
import json
import keyword
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from selfdistill_cli.core.errors import DataError, did_you_mean
from selfdistill_cli.core.texts import SURROGATE
from selfdistill_cli.core.types import Message, Task
from selfdistill_cli.envs.code.grading import complete_program, stands_alone
from selfdistill_cli.sandbox.inside import wire

SPLITS = ("train", "validation", "test")
FORMS = (
    'one of "test" (a program that defines check(candidate), as in HumanEval), "test_list" (a '
    'list of asserts, as in MBPP) or "calls" (a list of {"args": [...], "expected": ...})'
)


class Line:
    """One line of the file, with errors that say where it is."""

    def __init__(self, path: str, number: int, record: dict[str, Any]) -> None:
        """Keep the record and its place."""
        self._where, self.record = f"{path}, line {number}", record

    def error(self, name: str, found: str, expected: str) -> DataError:
        """Return an error about a field."""
        return DataError(f'{self._where}, field "{name}": found {found}; expected {expected}')

    def check_texts(self) -> None:
        """Raise DataError for a field with half a character, which no tokenizer or file takes."""
        for name, value in self.record.items():
            found = SURROGATE.search(json.dumps(value, ensure_ascii=False))
            if found is not None:
                raise self.error(
                    name, f"the lone surrogate {found.group()!r}", "text that can be UTF-8"
                )

    def text(self, *names: str, required: bool = True) -> str | None:
        """Return the first of these fields that is there; it must be a string."""
        for name in names:
            value = self.record.get(name)
            if value is None:
                continue
            if not isinstance(value, str):
                raise self.error(name, f"{type(value).__name__} {value!r:.60}", "a string")
            return value
        if not required:
            return None
        near = did_you_mean(names[0], self.record)
        others = "".join(f' (or "{name}")' for name in names[1:])
        raise self.error(names[0], f"no such field{near}", f"a string{others}; add it to the line")

    def texts(self, name: str) -> list[str]:
        """Return a field that must be a list of strings; empty if it is not there."""
        value = self.record.get(name) or []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(name, f"{value!r:.60}", "a list of strings")
        return value

    def parse(self, name: str, source: str) -> ast.Module:
        """Return the syntax tree of a field that must be Python."""
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError) as error:
            raise self.error(name, f"{error}", "Python code without syntax errors") from None


def read_tasks(
    path: str, validation_fraction: float, test_fraction: float
) -> dict[str, tuple[Task, ...]]:
    """Read a file of tasks and split it.

    A line's own `split` counts; without one, a hash of the task id decides, so that a task stays
    in its split when others come and go. Raises DataError naming file, line and field.
    """
    found: dict[str, list[Task]] = {split: [] for split in SPLITS}
    seen: dict[str, int] = {}
    for number, record in _records(path):
        line = Line(path, number, record)
        line.check_texts()
        task = make_task(line)
        if task.id in seen:
            raise line.error(
                "task_id", f"'{task.id}', also on line {seen[task.id]}", "an id of its own"
            )
        seen[task.id] = number
        found[_split(line, task.id, validation_fraction, test_fraction)].append(task)
    if not seen:
        raise DataError(f"{path}: found no task; expected one JSON object per line")
    return {split: tuple(tasks) for split, tasks in found.items()}


def _records(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    opener = gzip.open if path.endswith(".gz") else open
    problem = problem_with_file(path)
    if problem is not None:
        raise DataError(f"env.data={path}: {problem}")
    try:
        with opener(path, "rt", encoding="utf-8-sig") as file:
            for number, text in enumerate(file, start=1):
                if text.strip():
                    yield number, _record(path, number, text)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error}; is the file whole?") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: cannot be read as UTF-8 text: {error}") from None


def problem_with_file(path: str) -> str | None:
    """Return why there is no such file, with what is expected, or None."""
    if Path(path).is_file():
        return None
    found = "is a folder" if Path(path).is_dir() else "no such file"
    return (
        f"{found}; expected a .jsonl or .jsonl.gz file of tasks, or env.data=null for the "
        "built-in ones"
    )


def _record(path: str, number: int, text: str) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path}, line {number}: not JSON ({error}); expected one JSON object per line"
        ) from None
    if not isinstance(record, dict):
        raise DataError(
            f"{path}, line {number}: found a JSON {type(record).__name__}; expected an object "
            'with "task_id", "prompt" and tests'
        )
    return record


def _split(line: Line, task_id: str, validation_fraction: float, test_fraction: float) -> str:
    split = line.text("split", required=False)
    if split is not None:
        if split not in SPLITS:
            near = did_you_mean(split, SPLITS)
            raise line.error("split", f"'{split}'{near}", f"one of {', '.join(SPLITS)}")
        return split
    place = int.from_bytes(hashlib.sha256(task_id.encode()).digest()[:8], "big") / 2**64
    if place < test_fraction:
        return "test"
    return "validation" if place < test_fraction + validation_fraction else "train"


def make_task(line: Line) -> Task:
    """Return the task of one line; raises DataError."""
    task_id = line.record.get("task_id")
    if isinstance(task_id, bool) or not isinstance(task_id, (str, int)) or task_id == "":
        near = "" if "task_id" in line.record else did_you_mean("task_id", line.record)
        raise line.error("task_id", f"{task_id!r:.60}{near}", "a string or a whole number")
    prompt = line.text("prompt", "text") or ""
    if not prompt.strip():
        name = "prompt" if "prompt" in line.record else "text"
        raise line.error(name, "no words", "the description of the task")
    entry_point = _entry_point(line)
    prefix = prompt if re.search(rf"^def\s+{re.escape(entry_point)}\b", prompt, re.M) else ""
    meta = {"entry_point": entry_point, "prefix": prefix, **_tests(line, prefix)}
    skill = line.text("skill", required=False)
    if skill is not None:
        meta["skill"] = skill
    answer = line.text("canonical_solution", "code", required=False)
    if answer is not None:
        answer = complete_program(answer, entry_point, prefix)
        line.parse("canonical_solution" if "code" not in line.record else "code", answer)
    if entry_point not in prompt:
        prompt = f"{prompt.rstrip()}\nName the function {entry_point}."
    message = Message(role="user", content=prompt)
    return Task(id=str(task_id), messages=(message,), answer=answer, meta=meta)


def _tests(line: Line, prefix: str) -> dict[str, Any]:
    """Return the part of `meta` that holds the tests."""
    given = [name for name in ("test", "test_list", "calls") if line.record.get(name) is not None]
    if len(given) != 1:
        near = "" if given else did_you_mean("test_list", line.record)
        found = " and ".join(given) or f"none{near}"
        raise line.error("test", found, FORMS)
    if given == ["calls"]:
        return _calls(line)
    if given == ["test_list"]:
        tests = line.texts("test_list")
        if not tests:
            raise line.error("test_list", "an empty list", "at least one assert")
        for test in tests:
            line.parse("test_list", test)
        setup = [*line.texts("test_imports"), line.text("test_setup_code", required=False) or ""]
        line.parse("test_setup_code", "\n".join(setup))
        return {"setup": "\n".join(setup), "tests": tests}
    test = line.text("test") or ""
    tree = line.parse("test", test)
    checks = any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in tree.body)
    # Tests may use helpers that the prompt defines next to the function.
    helpers = f"{prefix}\n\n" if stands_alone(prefix) else ""
    if not checks:
        return {"setup": helpers, "tests": [test]}
    return {"setup": helpers + test, "tests": ["check(candidate)"]}


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
    return {"calls": calls, "expected": expected}


def _entry_point(line: Line) -> str:
    """Return `entry_point`, or the function that the first assert calls."""
    name = line.text("entry_point", required=not line.record.get("test_list"))
    if name is None:
        name = next(_called(line.parse("test_list", "\n".join(line.texts("test_list")))), None)
        if name is None:
            raise line.error("test_list", "no call of a function", "asserts that call one")
    if not name.isidentifier() or keyword.iskeyword(name):
        raise line.error("entry_point", f"'{name}'", "the name of a function")
    return name


def _called(tree: ast.Module) -> Iterator[str]:
    """Yield names of called functions that are not builtins, outermost first."""
    for node in ast.walk(tree):
        called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if called and not hasattr(builtins, node.func.id):
            yield node.func.id
