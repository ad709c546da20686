"""The mathematics environment.

A plain environment like `env=code`, not one of `envs/agents`: an answer is free text with its
working, so there is no tool to call and no action to parse; the answer's form is checked here.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from selfdistill_cli.core.errors import DataError
from selfdistill_cli.core.hints import Hint, HintKind, text_hint
from selfdistill_cli.core.protocols import StepResult
from selfdistill_cli.core.seeds import seed_for
from selfdistill_cli.core.texts import readable
from selfdistill_cli.core.types import Message, Score, Task, Trajectory
from selfdistill_cli.envs.attempts import Attempts
from selfdistill_cli.envs.math import arithmetic, hints
from selfdistill_cli.envs.math.answers import REQUESTS, find_answer, number, plain, render
from selfdistill_cli.envs.math.data import read_problems
from selfdistill_cli.envs.math.gym import Gym
from selfdistill_cli.envs.math.problems import Problem
from selfdistill_cli.envs.math.settings import MathSettings
from selfdistill_cli.envs.math.verifier import Exact, MathVerify
from selfdistill_cli.envs.splitting import SPLITS as DATA_SPLITS
from selfdistill_cli.envs.splitting import by_split, check_split, hashed_split

log = logging.getLogger(__name__)

DEMONSTRATIONS = "demonstrations"
SPLITS = (*DATA_SPLITS, DEMONSTRATIONS)
AGAIN = "Try again."
RESULT = re.compile(r"=\s?(-?[0-9][0-9.,]*)")


class MathEpisode:
    """One attempt at one task: an answer, and more where `env.attempts` allows them."""

    def __init__(self, env: MathEnv, task: Task, attempts: int) -> None:
        """Bind a task."""
        self.task = task
        self._env, self._left, self._used = env, attempts, 0

    def step(self, action: str) -> StepResult:
        """Grade the answer; the episode is over if it is right or was the last."""
        self._used += 1
        self._left -= 1
        outcome = {**self._env.grade(self.task, action), "attempts": self._used}
        if outcome["success"] >= 1.0 or self._left <= 0:
            return StepResult(done=True, outcome=outcome)
        said = Message(role="user", content=readable(f"{hints.feedback(outcome)} {AGAIN}"))
        return StepResult(observation=(said,), done=False, outcome=outcome)


class MathEnv:
    """Questions with one answer that can be checked."""

    name = "math"
    hints: frozenset[HintKind] = frozenset(
        {
            "answer",
            "sibling",
            "own_wrong_answer",
            "feedback",
            "evidence",
            "skill",
            "meta_skill",
        }
    )
    splits: ClassVar[tuple[str, ...]] = SPLITS

    def __init__(self, settings: MathSettings) -> None:
        """Keep the settings; reads no file and starts no process. Raises ConfigError."""
        self._settings = settings
        compares = settings.verifier == "math_verify" and settings.data_family is None
        self._verifier = MathVerify(settings.time_limit_s) if compares else Exact()
        self._gym: Gym | None = None
        self._tasks: dict[str, tuple[Task, ...]] | None = None
        self._warned: set[str] = set()

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the tasks of a split: train, validation, test or demonstrations.

        demonstrations is what of train has a reference answer. Raises ConfigError, DataError.
        """
        check_split("env=math", split, SPLITS)
        found = self._all_tasks()[split]
        if not found:
            raise DataError(
                f"env.data={self._settings.data}: no task falls into split '{split}'; use more "
                "problems (env.num_tasks, or lines of the file), or change "
                "env.validation_fraction, env.test_fraction"
            )
        return found

    def _all_tasks(self) -> dict[str, tuple[Task, ...]]:
        if self._tasks is None:
            s = self._settings
            told = by_split(
                (
                    p.split or hashed_split(p.id, s.validation_fraction, s.test_fraction),
                    self._task(p),
                )
                for p in self._problems()
            )
            known = tuple(task for task in told["train"] if task.answer is not None)
            self._tasks = {**told, DEMONSTRATIONS: known}
        return self._tasks

    def task_counts(self) -> dict[str, int] | None:
        """Return how many tasks each split has; None for a family that takes long to make.

        Raises DataError.
        """
        if self._settings.data_family is not None:
            return None
        return {split: len(tasks) for split, tasks in self._all_tasks().items()}

    def _problems(self) -> list[Problem]:
        s = self._settings
        if s.data_family is not None:
            return list(self._family().problems())
        if s.data is not None and s.data_family is None:
            return read_problems(s.data)
        return list(arithmetic.problems(s.kinds, s.difficulty, s.num_tasks, s.generator_seed))

    def _family(self) -> Gym:
        if self._gym is None:
            self._gym = Gym(self._settings)
        return self._gym

    def _task(self, problem: Problem) -> Task:
        s = self._settings
        asked = f"{problem.question}\n{REQUESTS[s.answer_format]}" if s.ask_for_format else None
        messages = [Message(role="user", content=asked or problem.question)]
        if s.instructions is not None:
            messages.insert(0, Message(role="system", content=s.instructions))
        return Task(
            id=problem.id,
            messages=tuple(messages),
            answer=self._reference(problem),
            meta={
                "final": problem.answer,
                "kind": problem.kind,
                "evidence": list(problem.evidence),
                "skill": problem.skill,
                "index": problem.index,
            },
        )

    def _reference(self, problem: Problem) -> str | None:
        """Return the response that demonstrates the answer; it is read back as the answer."""
        if problem.answer is None:
            return None
        form = self._settings.answer_format
        text = render(problem.working, problem.answer, form)
        read = find_answer(text, form).answer
        if read is None or plain(read) != plain(problem.answer):
            raise DataError(
                f"env.answer_format={form}: the answer of problem {problem.id} is "
                f"{problem.answer!r:.80}, which this form would read as {read!r:.80}; use "
                "env.answer_format=tag"
            )
        return text

    def fingerprint(self) -> str:
        """Return the SHA-256 of all problems: their ids, questions, answers and splits."""
        rows = [
            [split, task.id, task.messages, task.answer, dict(task.meta)]
            for split in DATA_SPLITS
            for task in self._all_tasks()[split]
        ]
        return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()

    def episode(self, task: Task, seed: int) -> MathEpisode:
        """Return a new episode. Nothing about it is random."""
        del seed
        return MathEpisode(self, task, self._settings.attempts)

    def grade(self, task: Task, response: str) -> dict[str, Any]:
        """Return the outcome of a response.

        `success` 0 or 1, `score` (the same, or a family's partial credit), `exact` (the very text
        of the answer), `format` (it stands where it should), `answer` (null if there is none),
        `response`, `verdict`, `scorer_errors` and `verifier_timeouts` (0 or 1). Raises RunError.
        """
        found = find_answer(response, self._settings.answer_format)
        verdict, score, failed = "no_answer", 0.0, False
        if found.answer is not None:
            verdict, score, failed = self._judged(task, found.answer)
        exact = found.answer is not None and found.answer.strip() == task.meta["final"]
        self._note(verdict, task)
        return {
            "success": float(score >= 1.0),
            "score": score,
            "exact": float(exact),
            "format": float(found.formatted),
            "answer": None if found.answer is None else readable(found.answer)[:200],
            "response": readable(response),
            "verdict": verdict,
            "scorer_errors": float(failed),
            "verifier_timeouts": float(verdict == "timeout"),
        }

    def _judged(self, task: Task, answer: str) -> tuple[str, float, bool]:
        """Return verdict, score, and whether a scorer failed."""
        if self._settings.data_family is None:
            verdict = self._verifier.check(task.meta["final"], answer)
            return verdict, float(verdict == "right"), False
        score, failed = self._family().score(task.meta["index"], answer)
        return "right" if score >= 1.0 else "error" if failed else "wrong", score, failed

    def _note(self, verdict: str, task: Task) -> None:
        """Tell once of comparisons that were stopped."""
        if verdict == "timeout" and verdict not in self._warned:
            self._warned.add(verdict)
            log.warning(
                "task %s: comparing an answer took more than env.time_limit_s=%g s of CPU time; "
                "such answers are wrong and counted as verifier_timeouts",
                task.id,
                self._settings.time_limit_s,
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

        answer: the reference solution. sibling: a correct response by another attempt (before any
        attempt, the reference). own_wrong_answer: the response of attempt `index`, if it failed.
        feedback: the same, with a step that is wrong or that the answer is. evidence: intermediate
        results. skill: how problems of this kind are solved. meta_skill: where a correct response
        and a failed one first differ.
        """
        key = seed_for(seed, kind, task.id, index or 0)
        attempts = Attempts(siblings, scores, index, key, graded_by="verdict")
        own, other, pair = attempts.own_failed(), attempts.solved(), attempts.pair()
        text = {
            "answer": lambda: task.answer,
            "sibling": lambda: (other["response"] if other else None) if siblings else task.answer,
            "own_wrong_answer": lambda: own["response"] if own else None,
            "feedback": lambda: hints.told(own) if own else None,
            "evidence": lambda: hints.evidence(task),
            "skill": lambda: task.meta["skill"],
            "meta_skill": lambda: hints.contrast(*(o["response"] for o in pair)) if pair else None,
        }.get(kind, lambda: None)()
        return text_hint(kind, text)

    def key_spans(self, task: Task, text: str) -> list[tuple[int, int]]:
        """Return where a response states results: what follows `=`, and its answer's number."""
        del task
        spans = [found.span(1) for found in RESULT.finditer(text)]
        answer = find_answer(text, self._settings.answer_format).answer
        if answer is not None and number(answer) is not None:
            start = text.rfind(answer)
            if start >= 0:
                spans.append((start, start + len(answer)))
        return sorted(set(spans))

    def close(self) -> None:
        """End the process of the verifier. May be called again."""
        self._verifier.close()
