"""Files of JSON lines, gzipped or not, and one line of them with errors that say where it is."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from selfdistill_cli.core.errors import DataError, did_you_mean
from selfdistill_cli.core.texts import SURROGATE, decoded
from selfdistill_cli.envs.files import file_or_error, problem_with_file


@dataclass(frozen=True, kw_only=True)
class FileKind:
    """What errors about the files of one key say."""

    key: str
    """The key that names the file, such as `env.data`."""
    file: str
    """What the key takes: `a .jsonl or .jsonl.gz file of tasks, or null for the built-in ones`."""
    names: tuple[str, ...] = ()
    """Words that the key takes beside files."""
    noun: str
    """What one line is: `task`."""
    record: str
    """What a line holds: `an object with "prompt"`."""

    def problem(self, path: str) -> str | None:
        """Return why there is no such file, found without reading it, or None."""
        problem = problem_with_file(path, self.file, self.names)
        return None if problem is None else f"{self.key}: got '{path}', {problem}"


class Line:
    """One line of a file: a JSON object."""

    def __init__(self, where: str, number: int, record: dict[str, Any]) -> None:
        """Keep the record and its place."""
        self.where, self.number, self.record = where, number, record

    def error(self, name: str, found: str, expected: str) -> DataError:
        """Return an error about a field."""
        return DataError(f'{self.where}, field "{name}": found {found}; expected {expected}')

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

    def identifier(self, name: str, others: Sequence[str] = ()) -> str:
        """Return a field that names the line; `others` would do as well."""
        if name not in self.record:
            more = "".join(f' or "{other}"' for other in others)
            expected = f"a string or a whole number{f' ({more[1:]})' if more else ''}; add it"
            raise self.error(name, f"no such field{did_you_mean(name, self.record)}", expected)
        value = self.record[name]
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            raise self.error(name, f"{value!r:.60}", "a string or a whole number")
        return str(value)

    def note_identifier(self, name: str, value: str, lines: dict[str, int]) -> None:
        """Add the line's identifier, of field `name`, to those of the lines above."""
        if value in lines:
            raise self.error(
                name, f"'{value:.60}', also on line {lines[value]}", "an id of its own"
            )
        lines[value] = self.number


def raw_lines(path: str, kind: FileKind) -> Iterator[tuple[int, str]]:
    """Yield number and text of the lines that are not empty; raises DataError."""
    where = f"{kind.key}={path}"
    file_or_error(path, kind.key, kind.file, kind.names)
    opener = gzip.open if path.endswith(".gz") else open
    try:
        with opener(path, "rb") as file:
            for number, raw in enumerate(file, start=1):
                text = decoded(raw, f"{where}, line {number}", path)
                if text.strip():
                    yield number, text
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{where}: cannot be read: {error}; is the file whole?") from None


def lines_of(path: str, kind: FileKind) -> Iterator[Line]:
    """Yield the lines, at least one; raises DataError naming key, file and line."""
    empty = True
    for number, text in raw_lines(path, kind):
        where = f"{kind.key}={path}, line {number}"
        yield Line(where, number, _record(where, text, kind))
        empty = False
    if empty:
        raise DataError(
            f"{kind.key}={path}: found no {kind.noun}; expected one JSON object per line"
        )


def _record(where: str, text: str, kind: FileKind) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON ({error}); expected one JSON object per line") from None
    if not isinstance(record, dict):
        raise DataError(f"{where}: found a JSON {type(record).__name__}; expected {kind.record}")
    return record
