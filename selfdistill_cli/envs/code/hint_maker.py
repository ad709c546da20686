"""The hints of the code environment: which program or fact a teacher is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from selfdistill_cli.core.hints import Hint, HintKind, text_hint
from selfdistill_cli.core.seeds import seed_for
from selfdistill_cli.core.types import Score, Task, Trajectory
from selfdistill_cli.envs.code import grading
from selfdistill_cli.envs.code import hints as texts

Grade = Callable[[Sequence[Task], Sequence[str]], list[dict[str, Any]]]


def _failed(siblings: Sequence[Trajectory], scores: Sequence[Score]) -> list[int]:
    """Attempts that were graded and failed: one without a graded answer has no program."""
    return [
        i
        for i, score in enumerate(scores)
        if score.success < 1.0 and "program" in siblings[i].outcome
    ]


class HintMaker:
    """Makes hints from tasks and graded attempts."""

    def __init__(self, built_in: bool, grade: Grade) -> None:
        """Keep whether the tasks are the built-in ones, and how programs are graded."""
        self._built_in, self._grade = built_in, grade
        self._makers: dict[str, Callable[..., str | None]] = {
            "answer": self._answer,
            "sibling": self._sibling,
            "own_wrong_answer": self._own_wrong_answer,
            "feedback": self._feedback,
            "evidence": self._evidence,
            "skill": self._skill,
            "meta_skill": self._meta_skill,
        }

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
        return text_hint(kind, self._makers[kind](task, siblings, scores, index, seed))

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
        if not self._built_in:
            return None
        from selfdistill_cli.envs.code import family

        return family.wrong_program(task, seed)

    def _own_wrong_answer(self, *args: Any) -> str | None:
        wrong = self._wrong(*args)
        return wrong["program"] if isinstance(wrong, dict) else wrong

    def _feedback(self, task: Task, *args: Any) -> str | None:
        wrong = self._wrong(task, *args)
        if isinstance(wrong, str):
            wrong = self._grade([task], [wrong])[0]
        if wrong is None:
            return None
        failure = grading.first_failure(wrong)
        return None if failure is None else f"{wrong['program'].strip()}\n{failure}"

    def _evidence(self, task: Task, *args: Any) -> str | None:
        return texts.evidence(task, args[-1])

    def _skill(self, task: Task, *args: Any) -> str | None:
        if not self._built_in:
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
