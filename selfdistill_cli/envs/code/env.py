"""The code environment."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, get_args

from selfdistill_cli.core.errors import ConfigError, DataError, did_you_mean
from selfdistill_cli.core.hints import Hint, HintKind
from selfdistill_cli.core.protocols import StepResult
from selfdistill_cli.core.seeds import seed_for
from selfdistill_cli.core.texts import readable
from selfdistill_cli.core.types import Message, Score, Task, Trajectory
from selfdistill_cli.envs.code import grading
from selfdistill_cli.envs.code import hints as texts
from selfdistill_cli.envs.code.data import SPLITS as DATA_SPLITS
from selfdistill_cli.envs.code.data import read_tasks
from selfdistill_cli.envs.code.key_spans import key_spans
from selfdistill_cli.envs.settings import CodeEnvSettings
from selfdistill_cli.sandbox.sandbox import Sandbox

log = logging.getLogger(__name__)

DEMONSTRATIONS, PRACTICE = "demonstrations", "practice"
SPLITS = (*DATA_SPLITS, DEMONSTRATIONS, PRACTICE)


def _failed(siblings: Sequence[Trajectory], scores: Sequence[Score]) -> list[int]:
    """Attempts that were graded and failed: one that was cut by a limit has no program."""
    return [
        i
        for i, score in enumerate(scores)
        if score.success < 1.0 and "program" in siblings[i].outcome
    ]


class CodeEpisode:
    """One attempt at one task: a single turn."""

    def __init__(self, env: CodeEnv, task: Task) -> None:
        """Bind a task."""
        self.task = task
        self._env = env

    def step(self, action: str) -> StepResult:
        """Grade the answer; the episode is over."""
        return self._env.step_many([self], [action])[0]


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
        self._broken: dict[str, str] = {}
        self._makers: dict[str, Callable[..., str | None]] = {
            "answer": self._answer,
            "sibling": self._sibling,
            "own_wrong_answer": self._own_wrong_answer,
            "feedback": self._feedback,
            "evidence": self._evidence,
            "skill": self._skill,
            "meta_skill": self._meta_skill,
        }

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
        if split not in SPLITS:
            raise ConfigError(
                f"env=code has no split '{split}'; expected one of {', '.join(SPLITS)}"
                + did_you_mean(split, SPLITS)
            )
        if split not in self._tasks:
            self._tasks.update(self._load(split))
        if not self._tasks[split]:
            raise DataError(
                f"{self._settings.data}: no task falls into split '{split}'; add tasks, give "
                'lines a field "split", or change env.validation_fraction, env.test_fraction'
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

    def fingerprint(self) -> str:
        """Return the SHA-256 of what `env.data` holds: the file's bytes, or the built-in tasks."""
        if self._settings.data is None:
            from selfdistill_cli.envs.code import family

            prints = "".join(map(family.fingerprint, DATA_SPLITS))
            return hashlib.sha256(prints.encode()).hexdigest()
        try:
            with open(self._settings.data, "rb") as file:
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
        """Return a single-turn episode. Nothing about it is random."""
        del seed
        return CodeEpisode(self, task)

    def step_many(
        self, episodes: Sequence[CodeEpisode], actions: Sequence[str]
    ) -> list[StepResult]:
        """Step several episodes at once, with the programs side by side in the sandbox."""
        outcomes = self.grade([episode.task for episode in episodes], actions)
        return [StepResult(done=True, outcome=outcome) for outcome in outcomes]

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
        """Return a hint, or None where there is none.

        answer: the reference program. sibling: a correct program by another attempt (before any
        attempt, the reference). own_wrong_answer: the program of attempt `index`, if it failed.
        feedback: the same with its first failing test. evidence: facts that the tests know, such as
        `f([3, -1]) is 9`. skill: how one part of the task is done, as an idiom
        (a user's task: its field `skill`). meta_skill: what a correct attempt does and a failed
        one does not. pruned: no text, but a prompt without the description.

        Before any attempt, feedback and own_wrong_answer use a made wrong program, and meta_skill
        contrasts it with the reference; only built-in tasks have one.
        """
        if kind == "pruned":
            messages = texts.pruned(task)
            return None if messages is None else Hint(kind=kind, text="", messages=messages)
        text = self._makers[kind](task, siblings, scores, index, seed)
        text = readable(text or "").strip()
        return Hint(kind=kind, text=text) if text else None

    def _answer(self, task: Task, *_: Any) -> str | None:
        return task.answer

    def _sibling(
        self,
        task: Task,
        siblings: Sequence[Trajectory],
        scores: Sequence[Score],
        index: int | None,
        seed: int,
    ) -> str | None:
        if not siblings:
            return task.answer
        good = [i for i, score in enumerate(scores) if score.success >= 1.0 and i != index]
        if not good:
            return None
        chosen = good[seed_for(seed, "sibling", task.id, index or 0) % len(good)]
        return siblings[chosen].outcome["program"]

    def _wrong(
        self,
        task: Task,
        siblings: Sequence[Trajectory],
        scores: Sequence[Score],
        index: int | None,
        seed: int,
    ) -> dict[str, Any] | str | None:
        """Return the outcome of the failed attempt, or a made wrong program, or None."""
        if siblings:
            if index is None or index not in _failed(siblings, scores):
                return None
            return dict(siblings[index].outcome)
        if self._settings.data is not None:
            return None
        from selfdistill_cli.envs.code import family

        return family.wrong_program(task, seed)

    def _own_wrong_answer(self, *args: Any) -> str | None:
        wrong = self._wrong(*args)
        return wrong["program"] if isinstance(wrong, dict) else wrong

    def _feedback(self, task: Task, *args: Any) -> str | None:
        wrong = self._wrong(task, *args)
        if isinstance(wrong, str):
            wrong = self.grade([task], [wrong])[0]
        if wrong is None:
            return None
        failure = grading.first_failure(wrong)
        return None if failure is None else f"{wrong['program'].strip()}\n{failure}"

    def _evidence(self, task: Task, *args: Any) -> str | None:
        return texts.evidence(task, args[-1])

    def _skill(self, task: Task, *args: Any) -> str | None:
        if self._settings.data is not None:
            return task.meta.get("skill")
        from selfdistill_cli.envs.code import family

        return family.skill(task, args[-1])

    def _meta_skill(
        self,
        task: Task,
        siblings: Sequence[Trajectory],
        scores: Sequence[Score],
        index: int | None,
        seed: int,
    ) -> str | None:
        """Contrast attempt `index`, if it failed, or any failed one, with a correct one."""
        if not siblings:
            wrong = self._wrong(task, siblings, scores, index, seed)
            return texts.contrast(task.answer, wrong) if isinstance(wrong, str) else None
        good = [i for i, score in enumerate(scores) if score.success >= 1.0]
        bad = _failed(siblings, scores)
        if not good or not bad:
            return None
        # Its own tokens in its prompt would say little: others come first.
        good = [i for i in good if i != index] or good
        bad = [index] if index in bad else bad
        chosen = [
            siblings[found[seed_for(seed, "meta_skill", task.id, name) % len(found)]]
            for name, found in (("good", good), ("bad", bad))
        ]
        return texts.contrast(*(attempt.outcome["program"] for attempt in chosen))

    def key_spans(self, task: Task, text: str) -> list[tuple[int, int]]:
        """Return where an answer names functions, starts loops and returns; see `key_spans`."""
        return key_spans(text, task.meta.get("prefix", ""))

    def close(self) -> None:
        """Stop the sandbox. May be called again."""
        self._sandbox.close()
