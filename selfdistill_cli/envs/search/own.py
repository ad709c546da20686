"""The user's own corpus and questions: JSON lines."""

from __future__ import annotations

from collections.abc import Mapping

from selfdistill_cli.core.errors import did_you_mean
from selfdistill_cli.core.texts import encodable
from selfdistill_cli.envs.json_lines import Line, lines_of
from selfdistill_cli.envs.search.answers import contains
from selfdistill_cli.envs.search.lexicon import Lexicon
from selfdistill_cli.envs.search.pages import Page
from selfdistill_cli.envs.search.questions import Question, Step
from selfdistill_cli.envs.search.reading import excerpt, sentences
from selfdistill_cli.envs.search.settings import PAGES, QUESTIONS
from selfdistill_cli.envs.splitting import by_split, hashed_split, known_split

MAX_FACT = 160
MIN_NAME = 3
"""Letters that a title must have to count as a link where a text names it."""


def _text(line: Line, name: str, required: bool = True) -> str:
    """Return a field that must be a text or a whole number; empty if it may be missing and is.

    Half characters are replaced, not refused: a corpus is large and made by others.
    """
    value = line.record.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    text = encodable(line.text(name, required=required) or "").strip()
    if required and not text:
        raise line.error(name, "no words", "a string")
    return text


def _texts(line: Line, name: str) -> list[str]:
    """Return a field that must be a list of texts or whole numbers; empty if it is not there."""
    value = line.record.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(v, str | int) for v in value):
        raise line.error(name, f"{value!r:.60}", "a list of strings")
    return [encodable(str(item)).strip() for item in value]


def read_pages(path: str) -> list[Page]:
    """Read `env.corpus`; raises DataError."""
    pages: dict[str, Page] = {}
    lines: dict[str, int] = {}
    for line in lines_of(path, PAGES):
        page = Page(id=_text(line, "id"), title=_text(line, "title"), text=_text(line, "text"))
        line.note_identifier("id", page.id, lines)
        pages[page.id] = page
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
    lines: dict[str, int] = {}
    questions: list[Question] = []
    for line in lines_of(path, QUESTIONS):
        questions.append(_question(line, pages, validation_fraction, test_fraction))
        line.note_identifier("id", questions[-1].id, lines)
    found = by_split((question.part, question) for question in questions)
    return {**found, "demonstrations": tuple(q for q in found["train"] if q.steps)}


def _question(
    line: Line, pages: Mapping[str, Page], validation_fraction: float, test_fraction: float
) -> Question:
    text = _text(line, "question")
    answers = _texts(line, "answers") or [_text(line, "answer")]
    evidence = _texts(line, "evidence")
    for page in evidence:
        if page not in pages:
            near = did_you_mean(page, pages)
            raise line.error("evidence", f"'{page:.60}'{near}", "ids of pages of env.corpus")
    name = _text(line, "id", required=False) or text
    named = _text(line, "split", required=False)
    shares = validation_fraction, test_fraction
    split = known_split(line, named) if named else hashed_split(name, *shares)
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
