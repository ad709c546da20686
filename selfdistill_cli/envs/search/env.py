"""The search environment."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from selfdistill_cli.core.errors import DataError
from selfdistill_cli.core.hints import HintKind
from selfdistill_cli.core.types import Message, Task
from selfdistill_cli.envs.agents.env import AgentEnv
from selfdistill_cli.envs.agents.skills import PromptSkills, Skills
from selfdistill_cli.envs.search import own
from selfdistill_cli.envs.search.collection import (
    QUESTIONS_FILE,
    Collection,
    fictional,
    real,
)
from selfdistill_cli.envs.search.facts import FACTS_FILE
from selfdistill_cli.envs.search.index import open_retriever
from selfdistill_cli.envs.search.library import Library
from selfdistill_cli.envs.search.pages import Page
from selfdistill_cli.envs.search.questions import Question
from selfdistill_cli.envs.search.settings import SearchSettings
from selfdistill_cli.envs.search.wording import GENERAL_SKILLS, SKILLS
from selfdistill_cli.envs.search.world import SearchWorld
from selfdistill_cli.envs.splitting import SPLITS as DATA_SPLITS
from selfdistill_cli.envs.splitting import check_split

FICTIONAL = ("demonstrations", "practice")
SPLITS = (*DATA_SPLITS, *FICTIONAL)
OWN_SKILL = "Search a few exact words, open the pages found, and follow the names they mention."
BUILTIN_SKILLS = Skills(
    general=GENERAL_SKILLS,
    task={**{kind: (line,) for kind, line in SKILLS.items()}, "own": (OWN_SKILL,)},
)


class SearchDomain:
    """Questions and the libraries that answer them, each made on first use."""

    def __init__(self, settings: SearchSettings) -> None:
        """Keep the settings; reads no file."""
        self._settings = settings
        self._collections: dict[str, Collection] = {}
        self._skills = PromptSkills(settings.prompt_skills, BUILTIN_SKILLS)

    def collection(self, split: str) -> Collection:
        """Return the collection that a split belongs to; raises ConfigError, DataError."""
        check_split("env=search", split, SPLITS)
        given = self._settings.corpus is not None
        made_up = split in FICTIONAL or self._settings.worlds == "made_up"
        name = "own" if given else split if made_up else "real"
        if name not in self._collections:
            self._collections[name] = self._made(name)
        return self._collections[name]

    def _made(self, name: str) -> Collection:
        s = self._settings
        if name == "real":
            return real(s)
        if name != "own":
            return fictional(s, name)
        pages, questions = self._read()
        library = Library(pages, open_retriever(s.retriever, pages, s.index), own.titles(pages))
        return Collection(library=library, questions=questions)

    def _read(self) -> tuple[list[Page], dict[str, tuple[Question, ...]]]:
        """Return the user's own pages and questions; raises DataError."""
        s = self._settings
        pages = own.read_pages(str(s.corpus))
        shares = s.validation_fraction, s.test_fraction
        return pages, own.read_questions(str(s.questions), {p.id: p for p in pages}, *shares)

    def task_counts(self) -> dict[str, int] | None:
        """Return how many of the user's questions each split has, without an index; None for the
        built-in ones. Raises DataError."""
        if self._settings.corpus is None:
            return None
        return {split: len(found) for split, found in self._read()[1].items()}

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the questions of a split; raises ConfigError, DataError."""
        questions = self.collection(split).questions.get(split, ())
        if not questions:
            s = self._settings
            found = f"env.hops={s.hops} leaves none" if s.questions is None else s.questions
            raise DataError(
                f"env=search: no question in split '{split}' ({found}); expected at least one: add "
                'lines with that "split", for demonstrations lines of train with "evidence"'
            )
        return [self._task(split, question) for question in questions]

    def _task(self, split: str, question: Question) -> Task:
        message = Message(role="user", content=question.text)
        return Task(
            id=f"{split}:{question.id}",
            messages=self._skills.added([message], question.kind),
            answer=question.answers[0],
            meta={"split": split, **question.meta()},
        )

    def world(self, task: Task, seed: int) -> SearchWorld:
        """Return a new episode; nothing about it is random."""
        del seed
        library = self.collection(task.meta["split"]).library
        return SearchWorld(library, _question(task), self._settings)

    def hint(self, kind: HintKind, task: Task, seed: int) -> str | None:
        """Return the answer, the sentences that prove it, or the way to it."""
        del seed
        question = _question(task)
        if kind == "answer":
            return question.answers[0]
        if kind == "evidence":
            return "\n".join(dict.fromkeys(step.fact for step in question.steps)) or None
        if kind == "skill":
            return BUILTIN_SKILLS.task[question.kind][0]
        return None

    def feedback(self, task: Task, outcome: Mapping[str, Any]) -> str | None:
        """Return what was wrong: the answer, and the first page of the way that was not opened."""
        question, given = _question(task), outcome.get("answer")
        said = ["No answer was given." if given is None else f"The answer '{given}' is wrong."]
        missing = [step for step in question.steps if step.page not in outcome.get("opened", ())]
        if missing:
            step = missing[0]
            title = self.collection(task.meta["split"]).library.pages[step.page].title
            said.append(f"Never opened: '{title}'; search '{step.query}'.")
        elif question.steps:
            said.append(f"All pages were opened; the last one says: {question.steps[-1].fact}")
        return " ".join(said)

    def without_skills(self, task: Task) -> tuple[Message, ...] | None:
        """Return the messages without the general skills."""
        return self._skills.pruned(task.messages)

    def close(self) -> None:
        """Close the indexes."""
        for collection in self._collections.values():
            collection.library.close()
        self._collections.clear()


def _question(task: Task) -> Question:
    return Question.of({key: value for key, value in task.meta.items() if key != "split"})


class SearchEnv(AgentEnv):
    """Questions that take several searches."""

    name = "search"
    splits: ClassVar[tuple[str, ...]] = SPLITS
    hints: frozenset[HintKind] = frozenset(
        {"answer", "evidence", "own_wrong_answer", "feedback", "sibling", "skill", "meta_skill",
         "pruned"}
    )  # fmt: skip

    def __init__(self, settings: SearchSettings) -> None:
        """Keep the settings; reads no file."""
        self._search = SearchDomain(settings)
        super().__init__(settings, self._search)
        self._files = (
            (str(FACTS_FILE), str(QUESTIONS_FILE))
            if settings.corpus is None
            else (settings.corpus, str(settings.questions))
        )

    def fingerprint(self) -> str:
        """Return the SHA-256 of the corpus and the questions. Raises DataError."""
        digest = hashlib.sha256()
        for path in self._files:
            try:
                with open(path, "rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
            except OSError as error:
                raise DataError(f"env=search: {path}: {error.strerror}") from None
        return digest.hexdigest()

    def task_counts(self) -> dict[str, int] | None:
        """Return how many of the user's questions each split has; None for the built-in ones."""
        return self._search.task_counts()

    def close(self) -> None:
        """Close the indexes."""
        self._search.close()
        self._tasks.clear()
