"""The guard around whatever the group `reward` builds: a run meets nothing but scores."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from selfdistill_cli.core.protocols import Reward
from selfdistill_cli.core.types import Score, Trajectory
from selfdistill_cli.rewards.collecting import Asked, Undo, collect
from selfdistill_cli.rewards.errors import ErrorBook, ErrorPolicy, read_score
from selfdistill_cli.rewards.outcomes import success_of

WHOLE = "reward"
"""Name of a whole reward in counters and messages."""


class GuardedReward:
    """Scores batches in order; failures follow the policy; the reward's memory is kept here."""

    def __init__(self, reward: Reward, policy: ErrorPolicy, path: Path | None = None) -> None:
        """Wrap a reward. `path` is where samples that could not be scored are saved."""
        self.reward: Any = reward
        # A composite keeps a book for its components: one book, one file, one set of counters.
        self.book: ErrorBook = getattr(reward, "errors", None) or ErrorBook()
        self.book.path = path
        self._before: dict[str, Any] | None = None
        many: Callable[[Sequence[Trajectory]], Any] | None = getattr(reward, "score_many", None)
        self._asked = Asked[Score](
            name=WHOLE,
            many=many or (lambda trajectories: [reward.score(t) for t in trajectories]),
            batched=many is not None,
            read=read_score,
            masked=_masked,
            zero=_zero,
            policy=policy,
            remember=self._remember,
        )

    def begin_step(self) -> None:
        """Note the memory as it is between steps, for `rewind`."""
        self._before = copy.deepcopy(self.state_dict())

    def rewind(self) -> None:
        """Put back the memory of the step's begin: the step came to nothing."""
        if self._before is not None:
            self.load_state_dict(self._before)

    def score_many(
        self, trajectories: Sequence[Trajectory], *, step: int, learning: bool
    ) -> list[Score]:
        """Score in the order given. An evaluation (`learning` false) leaves no trace in memory.

        Raises RewardError if a failure stops the run.
        """
        self.book.step, self.book.may_abort = step, learning
        if learning and self.book.overdue is not None:
            raise self.book.overdue
        if learning:
            return collect(self._asked, trajectories, self.book)
        undo = self._remember()
        if hasattr(self.reward, "learning"):
            self.reward.learning = False
        try:
            return collect(self._asked, trajectories, self.book)
        finally:
            if hasattr(self.reward, "learning"):
                self.reward.learning = True
            undo()

    def metrics(self) -> dict[str, float]:
        """Counters of failures since the last call."""
        return self.book.metrics()

    def state_dict(self) -> dict[str, Any]:
        """The reward's memory, None if it has none, and the failures so far."""
        inner = self.reward.state_dict() if self.stateful else None
        return {"reward": inner, "errors": self.book.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; a checkpoint of before had nothing."""
        if state.get("reward") is not None and self.stateful:
            self.reward.load_state_dict(state["reward"])
        self.book.load_state_dict(state.get("errors", {}))

    @property
    def watched(self) -> str:
        """The metric whose collapse stops a run: the reward's own choice, or its mean."""
        return str(getattr(self.reward, "watched", "reward/mean"))

    @property
    def stateful(self) -> bool:
        """Whether the reward has a memory that belongs in the checkpoint."""
        return hasattr(self.reward, "state_dict") and hasattr(self.reward, "load_state_dict")

    def _remember(self) -> Undo:
        if not self.stateful:
            return lambda: None
        before = copy.deepcopy(self.reward.state_dict())
        return lambda: self.reward.load_state_dict(before)


def _masked(trajectory: Trajectory) -> Score:
    success = success_of(trajectory.outcome)
    return Score(total=None, success=success, parts={}, missing=(WHOLE,))


def _zero(trajectory: Trajectory) -> Score:
    return Score(total=0.0, success=success_of(trajectory.outcome), parts={}, missing=(WHOLE,))
