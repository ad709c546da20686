"""A library with the questions about it: the real world, a made-up one, or the user's own."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from selfdistill_cli.envs.search.answers import contains
from selfdistill_cli.envs.search.facts import Entity, real_world
from selfdistill_cli.envs.search.fiction import fictional_world
from selfdistill_cli.envs.search.index import FtsIndex, open_retriever
from selfdistill_cli.envs.search.lexicon import Lexicon
from selfdistill_cli.envs.search.library import Library
from selfdistill_cli.envs.search.pages import Page, pages_of
from selfdistill_cli.envs.search.questions import Question, ask
from selfdistill_cli.envs.search.settings import SearchSettings
from selfdistill_cli.envs.search.wording import CLUES, TARGETS
from selfdistill_cli.envs.search.world import SearchWorld

QUESTIONS_FILE = Path(__file__).parent / "data" / "questions.jsonl.gz"
LEAK_RESULTS = 5
"""The question's own words must not find the answer among so many pages."""
VETTED_STEPS = 12
"""Actions in which an expert must be able to answer, choosing from listed ones."""
VETTING = SearchSettings(
    format="choices", max_steps=VETTED_STEPS, max_observation=240, instructions=None,
    describe_tools=False, show_choices=True, corpus=None, questions=None, retriever="fts5",
    index=None, results=5, list_results=True, snippet=0, max_choices=12, hops=[2, 3, 4],
    worlds="real", world_size=60, world_seed=0, prompt_skills=None, validation_fraction=0.1,
    test_fraction=0.1,
)  # fmt: skip
"""How built-in questions are checked, whatever a run's own settings are."""


@dataclass(frozen=True, kw_only=True)
class Collection:
    """Questions by split, with the library that answers them."""

    library: Library
    questions: Mapping[str, tuple[Question, ...]]
    by_id: Mapping[str, Question] = field(init=False)

    def __post_init__(self) -> None:
        known = {q.id: q for questions in self.questions.values() for q in questions}
        object.__setattr__(self, "by_id", known)


def pages_about(entities: Iterable[Entity]) -> list[Page]:
    """Return the pages of all entities."""
    return [page for entity in entities for page in pages_of(entity)]


def lexicon_of(entities: Iterable[Entity]) -> Lexicon:
    """Return the names of entities and of what can be asked or searched."""
    kinds: dict[str, dict[str, str]] = {}
    for entity in entities:
        kinds.setdefault(entity.name, {})[entity.kind] = entity.name
        for attribute, clue in CLUES[entity.kind].items():
            if attribute in entity.facts:
                value = str(entity.facts[attribute])
                kinds.setdefault(clue.query.format(v=value), {})[attribute] = value
        for attribute in TARGETS[entity.kind]:
            if attribute in entity.facts and attribute not in CLUES[entity.kind]:
                value = str(entity.facts[attribute])
                kinds.setdefault(value, {})[attribute] = value
    return Lexicon(kinds)


def vetted(library: Library, question: Question) -> bool:
    """Whether a scripted agent answers within the steps, and the question alone does not."""
    found = library.search(question.text, LEAK_RESULTS)
    if any(contains(page.text, answer) for page in found for answer in question.answers):
        return False
    world = SearchWorld(library, question, VETTING)
    for _ in range(VETTED_STEPS):
        action = world.expert()
        if action is None:
            return False
        if world.act(action).done:
            return world.facts()["success"] == 1.0
    return False


def _library(entities: Sequence[Entity], kind: str, index: str | None) -> Library:
    pages = pages_about(entities)
    return Library(pages, open_retriever(kind, pages, index), lexicon_of(entities))


def asked(
    entities: Sequence[Entity], limit: int, seed: int, hops: Sequence[int] = (2, 3, 4)
) -> tuple[Question, ...]:
    """Return vetted questions about entities; the index is in memory and always FTS5."""
    pages = pages_about(entities)
    library = Library(pages, FtsIndex(pages, None), lexicon_of(entities))
    return tuple(ask(entities, limit, seed, lambda q: q.hops in hops and vetted(library, q)))


@cache
def shipped_questions() -> tuple[Question, ...]:
    """Return the questions about the real world, as `build` wrote them."""
    lines = gzip.decompress(QUESTIONS_FILE.read_bytes()).decode().splitlines()
    return tuple(Question.of(json.loads(line)) for line in lines)


def real(settings: SearchSettings) -> Collection:
    """Return countries and elements, with the shipped questions."""
    library = _library(real_world(), settings.retriever, settings.index)
    return Collection(library=library, questions=_by_part(shipped_questions(), settings.hops))


def fictional(settings: SearchSettings, part: str) -> Collection:
    """Return a made-up world whose questions are one split."""
    world = fictional_world(settings.world_seed, part, settings.world_size)
    questions = _invented(settings.world_seed, part, settings.world_size, tuple(settings.hops))
    library = _library(world, settings.retriever, settings.index)
    return Collection(library=library, questions={part: questions})


@cache
def _invented(seed: int, part: str, size: int, hops: tuple[int, ...]) -> tuple[Question, ...]:
    """Return as many questions of each kind as there are countries, if there are so many."""
    return asked(fictional_world(seed, part, size), size, seed, hops)


def _by_part(questions: Iterable[Question], hops: Sequence[int]) -> dict[str, tuple[Question, ...]]:
    found: dict[str, list[Question]] = {}
    for question in questions:
        if question.hops in hops:
            found.setdefault(question.part, []).append(question)
    return {part: tuple(of) for part, of in found.items()}


def build(target: Path = QUESTIONS_FILE) -> None:
    """Write the shipped questions from the shipped facts."""
    lines = "".join(json.dumps(q.meta(), sort_keys=True) + "\n" for q in asked(*REAL_ASKING))
    target.write_bytes(gzip.compress(lines.encode(), compresslevel=9, mtime=0))
    print(f"{lines.count(chr(10))} questions, {target.stat().st_size} bytes: {target}")


REAL_ASKING = (real_world(), 160, 0)
"""Entities, most questions of one kind and part, and seed of the shipped questions."""

if __name__ == "__main__":
    build()
