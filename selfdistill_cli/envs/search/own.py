"""The user's own corpus and questions: JSON lines."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from selfdistill_cli.core.errors import DataError, did_you_mean
from selfdistill_cli.core.seeds import seed_for
from selfdistill_cli.core.texts import encodable
from selfdistill_cli.envs.search.answers import contains
from selfdistill_cli.envs.search.lexicon import Lexicon
from selfdistill_cli.envs.search.pages import Page
from selfdistill_cli.envs.search.questions import Question, Step
from selfdistill_cli.envs.search.reading import excerpt, sentences

SPLITS = ("train", "validation", "test")
MAX_FACT = 160
MIN_NAME = 3
"""Letters that a title must have to count as a link where a text names it."""


class Line:
    """One line of a file, with errors that say where it is."""

    def __init__(self, key: str, path: str, number: int, record: dict[str, Any]) -> None:
        self._where, self.record = f"{key}={path}, line {number}", record

    def error(self, name: str, found: str, expected: str) -> DataError:
        """Return an error about a field."""
        return DataError(f'{self._where}, field "{name}": found {found}; expected {expected}')

    def text(self, name: str, required: bool = True) -> str:
        """Return a field that must be a text; empty if it is not there and need not be."""
        value = self.record.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if value is None and not required:
            return ""
        if value is None:
            near = did_you_mean(name, self.record)
            raise self.error(name, f"no such field{near}", "a string; add it to the line")
        if not isinstance(value, str) or (required and not value.strip()):
            raise self.error(name, f"{type(value).__name__} {value!r:.60}", "a string")
        return encodable(value).strip()

    def texts(self, name: str) -> list[str]:
        """Return a field that must be a list of texts; empty if it is not there."""
        value = self.record.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(v, str | int) for v in value):
            raise self.error(name, f"{value!r:.60}", "a list of strings")
        return [encodable(str(item)).strip() for item in value]


def _lines(key: str, path: str) -> Iterator[Line]:
    """Yield the lines of a file; raises DataError naming key, file and line."""
    if not Path(path).is_file():
        found = "is a folder" if Path(path).is_dir() else "no such file"
        raise DataError(f"{key}={path}: {found}; expected a .jsonl or .jsonl.gz file")
    opener = gzip.open if path.endswith(".gz") else open
    try:
        with opener(path, "rt", encoding="utf-8-sig") as file:
            for number, text in enumerate(file, start=1):
                if text.strip():
                    yield Line(key, path, number, _record(f"{key}={path}, line {number}", text))
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{key}={path}: cannot be read: {error}; is the file whole?") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{key}={path}: cannot be read as UTF-8 text: {error}") from None


def _record(where: str, text: str) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON ({error}); expected one JSON object per line") from None
    if not isinstance(record, dict):
        raise DataError(f"{where}: found {type(record).__name__}; expected a JSON object")
    return record


def read_pages(path: str) -> list[Page]:
    """Read `env.corpus`; raises DataError."""
    pages: dict[str, Page] = {}
    for line in _lines("env.corpus", path):
        page = Page(id=line.text("id"), title=line.text("title"), text=line.text("text"))
        if page.id in pages:
            raise line.error("id", f"'{page.id}' again", "an id of its own")
        pages[page.id] = page
    if not pages:
        raise DataError(f"env.corpus={path}: found no page; expected one JSON object per line")
    return list(pages.values())


def titles(pages: list[Page]) -> Lexicon:
    """Return the subjects of the pages as names, so that texts which name one link to it."""
    names = {page.subject for page in pages if len(page.subject) >= MIN_NAME}
    return Lexicon({name: {"page": name} for name in names})


def read_questions(
    path: str, pages: Mapping[str, Page], validation_fraction: float, test_fraction: float
) -> dict[str, tuple[Question, ...]]:
    """Read `env.questions` and split them; raises DataError.

    A line's own `split` counts; without one a hash of its id decides. The id is the question if a
    line has none. `demonstrations` are the questions of train that name evidence.
    """
    found: dict[str, list[Question]] = {split: [] for split in SPLITS}
    seen: set[str] = set()
    for line in _lines("env.questions", path):
        question = _question(line, pages, validation_fraction, test_fraction)
        if question.id in seen:
            raise line.error("id", f"'{question.id:.60}' again", "an id of its own")
        seen.add(question.id)
        found[question.part].append(question)
    if not seen:
        raise DataError(f"env.questions={path}: found no question; expected JSON objects")
    found["demonstrations"] = [q for q in found["train"] if q.steps]
    return {split: tuple(questions) for split, questions in found.items()}


def _question(
    line: Line, pages: Mapping[str, Page], validation_fraction: float, test_fraction: float
) -> Question:
    text = line.text("question")
    answers = line.texts("answers") or [line.text("answer")]
    evidence = line.texts("evidence")
    for page in evidence:
        if page not in pages:
            near = did_you_mean(page, pages)
            raise line.error("evidence", f"'{page:.60}'{near}", "ids of pages of env.corpus")
    name = line.text("id", required=False) or text
    split = line.text("split", required=False) or _split(name, validation_fraction, test_fraction)
    if split not in SPLITS:
        raise line.error("split", f"'{split:.60}'", f"one of {', '.join(SPLITS)}")
    steps = [_step(pages[page], text, answers) for page in evidence]
    return Question(
        id=name, kind="own", hops=len(set(evidence)), text=text, answers=tuple(answers),
        answer_kind="", steps=tuple(steps), entities=(), part=split,
    )  # fmt: skip


def _step(page: Page, question: str, answers: list[str]) -> Step:
    """Return the step to a page: the sentence that counts holds the answer, else fits best."""
    parts = sentences(page.text) or [page.text]
    holds = [part for part in parts if any(contains(part, answer) for answer in answers)]
    fact = holds[0] if holds else excerpt(page.text, question, MAX_FACT)
    return Step(query=page.subject, page=page.id, fact=fact[:MAX_FACT])


def _split(name: str, validation_fraction: float, test_fraction: float) -> str:
    place = seed_for("split", name) / 2**63
    if place < validation_fraction:
        return "validation"
    return "test" if place < validation_fraction + test_fraction else "train"
