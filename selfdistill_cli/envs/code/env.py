"""The code environment."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, get_args

from selfdistill_cli.core.errors import DataError
from selfdistill_cli.core.findings import Finding
from selfdistill_cli.core.hints import Hint, HintKind
from selfdistill_cli.core.protocols import StepResult
from selfdistill_cli.core.types import Message, Score, Task, Trajectory
from selfdistill_cli.envs.code import grading, references, validating
from selfdistill_cli.envs.code.attempts import CodeEpisode
from selfdistill_cli.envs.code.data import placed_tasks, read_tasks
from selfdistill_cli.envs.code.hint_maker import HintMaker
from selfdistill_cli.envs.code.key_spans import key_spans
from selfdistill_cli.envs.code.readers.named import TASKS, find
from selfdistill_cli.envs.json_lines import raw_lines
from selfdistill_cli.envs.settings import CodeEnvSettings
from selfdistill_cli.envs.splitting import SPLITS as DATA_SPLITS
from selfdistill_cli.envs.splitting import check_split
from selfdistill_cli.sandbox.sandbox import Sandbox

log = logging.getLogger(__name__)

DEMONSTRATIONS, PRACTICE = "demonstrations", "practice"
SPLITS = (*DATA_SPLITS, DEMONSTRATIONS, PRACTICE)


class CodeEnv:
    """Tasks that ask for a Python function, graded by tests in a sandbox."""

    name = "code"
    hints: frozenset[HintKind] = frozenset(get_args(HintKind))
    splits: ClassVar[tuple[str, ...]] = SPLITS

    def __init__(self, settings: CodeEnvSettings) -> None:
        """Keep the settings; reads no file and starts no process."""
        self._settings = settings
        self._sandbox: Sandbox = settings.sandbox.build()
        self._tasks: dict[str, tuple[Task, ...]] = {}
        self._complete: set[str] = set()
        self._broken: dict[str, str] = {}
        self._hint_maker = HintMaker(settings.data is None, self.grade)

    @property
    def isolation(self) -> str:
        """The sandbox level in force, for people. Starts the sandbox; raises SandboxError."""
        return self._sandbox.level

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the tasks of a split: train, validation, test, demonstrations or practice.

        demonstrations is the part of train that supervised learning may see: tasks with a
        reference answer. practice is of the built-in tasks only: programs that nothing but a hint
        can tell. Raises ConfigError, DataError.
        """
        found = self._of_split(split)
        if split not in self._complete:
            found = references.with_expected(self._sandbox, found, self._settings.data)
            self._tasks[split] = found
            self._complete.add(split)
        return found

    def _of_split(self, split: str) -> tuple[Task, ...]:
        """Return the tasks as they were read: some expected values may be missing."""
        check_split("env=code", split, SPLITS)
        if split not in self._tasks:
            self._tasks.update(self._load(split))
        if not self._tasks[split]:
            raise DataError(
                f"env.data={self._settings.data}: no task falls into split '{split}'; add tasks, "
                'give lines a field "split", or change env.validation_fraction, env.test_fraction'
            )
        return self._tasks[split]

    def _load(self, split: str) -> dict[str, tuple[Task, ...]]:
        """Read at least `split`: a file gives all of them at once."""
        if self._settings.data is None:
            from selfdistill_cli.envs.code import family

            found = {split: family.tasks(split)}
        else:
            found = read_tasks(
                self._settings.data,
                self._settings.validation_fraction,
                self._settings.test_fraction,
            )
            answered = [task for task in found["train"] if task.answer is not None]
            found = {**found, DEMONSTRATIONS: tuple(answered), PRACTICE: ()}
        return {split: tuple(map(self._instructed, tasks)) for split, tasks in found.items()}

    def task_counts(self) -> dict[str, int] | None:
        """Return how many tasks of each split `env.data` holds; None for the built-in ones.

        Raises ConfigError, DataError.
        """
        if self._settings.data is None:
            return None
        return {split: len(tasks) for split, tasks in self._load("train").items()}

    def fingerprint(self) -> str:
        """Return the SHA-256 of what `env.data` holds: the file's bytes, or the built-in tasks."""
        if self._settings.data is None:
            from selfdistill_cli.envs.code import family

            prints = "".join(map(family.fingerprint, DATA_SPLITS))
            return hashlib.sha256(prints.encode()).hexdigest()
        try:
            with open(find(self._settings.data), "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise DataError(f"env.data={self._settings.data}: {error.strerror}") from None

    def _instructed(self, task: Task) -> Task:
        if self._settings.instructions is None:
            return task
        system = Message(role="system", content=self._settings.instructions)
        return Task(
            id=task.id, messages=(system, *task.messages), answer=task.answer, meta=task.meta
        )

    def episode(self, task: Task, seed: int) -> CodeEpisode:
        """Return an episode of up to `attempts` turns. Nothing about it is random."""
        del seed
        return CodeEpisode(self, task, self._settings.attempts, self._settings.shown_failures)

    def step_many(
        self, episodes: Sequence[CodeEpisode], actions: Sequence[str]
    ) -> list[StepResult]:
        """Step several episodes at once, with the programs side by side in the sandbox."""
        outcomes = self.grade([episode.task for episode in episodes], actions)
        pairs = zip(episodes, outcomes, strict=True)
        return [episode.after(outcome) for episode, outcome in pairs]

    def grade(self, tasks: Sequence[Task], actions: Sequence[str]) -> list[dict[str, Any]]:
        """Return the outcome of each answer; see `grading.grade`. Raises SandboxError."""
        outcomes = grading.grade(self._sandbox, tasks, actions)
        self._note_broken(tasks, outcomes)
        return outcomes

    def _note_broken(self, tasks: Sequence[Task], outcomes: Sequence[dict[str, Any]]) -> None:
        """Count tasks whose tests fail before they call anything; the first ones are told."""
        first = not self._broken
        for task, outcome in zip(tasks, outcomes, strict=True):
            if outcome["status"] == "test_error":
                self._broken.setdefault(task.id, outcome["error"])
        if first and self._broken:
            self._warn_of_broken()

    def _warn_of_broken(self) -> None:
        task_id, error = next(iter(self._broken.items()))
        log.warning(
            "%s: the tests of %d tasks fail by themselves, so that no answer can pass them, e.g. "
            "task %s: %s",
            self._settings.data,
            len(self._broken),
            task_id,
            error,
        )

    def hint(
        self,
        kind: HintKind,
        task: Task,
        siblings: Sequence[Trajectory],
        scores: Sequence[Score],
        index: int | None,
        seed: int,
    ) -> Hint | None:
        """Return a hint, or None where there is none; see `HintMaker`."""
        return self._hint_maker.hint(kind, task, siblings, scores, index, seed)

    def validate(self, split: str | None) -> Iterator[Finding]:
        """Yield one finding per task of a split, or of all tasks; see `validating`.

        Raises ConfigError, DataError, SandboxError.
        """
        if self._settings.data is None:
            splits = (*DATA_SPLITS, PRACTICE) if split is None else (split,)
            chosen = [(None, task) for name in splits for task in self.tasks(name)]
        else:
            numbered = [(line.number, task) for line, task in placed_tasks(self._settings.data)]
            names = None if split is None else {task.id for task in self._of_split(split)}
            chosen = [pair for pair in numbered if names is None or pair[1].id in names]
        yield from validating.findings(self._sandbox, chosen)

    @property
    def data_path(self) -> str | None:
        """The file of `env.data`; None for built-in tasks. Raises DataError for an unknown name."""
        return None if self._settings.data is None else find(self._settings.data)

    def data_lines(self) -> list[tuple[int, str]]:
        """Return number and text of the lines of `env.data`; empty for built-in tasks."""
        data = self._settings.data
        return [] if data is None else list(raw_lines(find(data), TASKS))

    def key_spans(self, task: Task, text: str) -> list[tuple[int, int]]:
        """Return where an answer names functions, starts loops and returns; see `key_spans`."""
        return key_spans(text, task.meta.get("prefix", ""))

    def close(self) -> None:
        """Stop the sandbox. May be called again."""
        self._sandbox.close()
