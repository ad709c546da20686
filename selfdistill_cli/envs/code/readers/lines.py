"""Files of JSON lines, gzipped or not, and one line of them with errors that say where it is."""

from __future__ import annotations

import ast
import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from selfdistill_cli.core.errors import DataError, did_you_mean
from selfdistill_cli.core.texts import SURROGATE
from selfdistill_cli.envs.code.readers import named


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
            self.check_text(name, value)

    def check_text(self, name: str, value: Any) -> None:
        """Raise DataError if half a character is anywhere in a JSON value."""
        try:
            found = SURROGATE.search(json.dumps(value, ensure_ascii=False))
        except RecursionError:
            raise self.error(name, "deep nesting", "values that are less deep") from None
        if found is not None:
            raise self.error(
                name, f"the lone surrogate {found.group()!r}", "text that can be UTF-8"
            )

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.record.get(name) is not None

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

    def json(self, name: str, expected: str) -> Any:
        """Return a field that holds JSON, as such or inside a string; None if it is not there.

        `expected` says what the JSON should be, for the error about a string that is none.
        """
        value = self.record.get(name)
        if not isinstance(value, str):
            return value
        if not value.strip():
            return None
        try:
            found = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise self.error(name, f"a string that is not JSON ({error})", expected) from None
        self.check_text(name, found)  # an escape inside the string is a character only now
        return found

    def parse(self, name: str, source: str) -> ast.Module:
        """Return the syntax tree of a field that must be Python."""
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError) as error:
            raise self.error(name, f"{error}", "Python code without syntax errors") from None


def raw_lines(path: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of the lines that are not empty; raises DataError."""
    opener = gzip.open if path.endswith(".gz") else open
    problem = problem_with_file(path)
    if problem is not None:
        raise DataError(f"env.data={path}: {problem}")
    try:
        with opener(path, "rt", encoding="utf-8-sig") as file:
            for number, text in enumerate(file, start=1):
                if text.strip():
                    yield number, text
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error}; is the file whole?") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: cannot be read as UTF-8 text: {error}") from None


def lines_of(path: str) -> Iterator[tuple[int, Line]]:
    """Yield number and content of the lines; raises DataError naming file and line."""
    for number, text in raw_lines(path):
        line = Line(path, number, _record(path, number, text))
        line.check_texts()
        yield number, line


def problem_with_file(path: str) -> str | None:
    """Return why there is no such file, with what is expected, or None."""
    if Path(path).is_file():
        return None
    found = "is a folder" if Path(path).is_dir() else "no such file"
    near = did_you_mean(path, named.NAMES)
    return (
        f"{found}; expected a .jsonl or .jsonl.gz file of tasks, a name "
        f"({', '.join(named.NAMES)}), or env.data=null for the built-in ones{near}"
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
