"""Rewards and components of a user that go wrong, each in the way that its settings name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from selfdistill_cli.core.settings import Settings
from selfdistill_cli.core.types import Finish, Generation, Score, Stop, Task, Trajectory, Turn
from selfdistill_cli.rewards.settings import ComponentSettings, CompositeSettings

COMMON = {
    "weight": 1.0, "scale": 1.0, "clip": None, "normalize": False, "on_error": "mask",
    "retries": 2, "error_budget": 100,
}  # fmt: skip
"""Settings that every component has."""


def say(what: str) -> Any:
    """What a faulty part gives, or it raises."""
    if what == "exception":
        raise KeyError("no such thing")
    values = {"nan": float("nan"), "inf": float("-inf"), "none": None, "not_a_number": "0.5"}
    return values[what]


@dataclass(frozen=True, kw_only=True)
class FaultySettings(ComponentSettings):
    """Fails for trajectories whose answer is `bad`."""

    implementation: ClassVar[str] = "faulty_parts:Faulty"

    fault: str
    """A kind of failure."""
    good: float
    """Value of every other answer."""
    fails: int
    """Times that an answer fails before it succeeds."""


class Faulty:
    """Counts how often it was asked for each answer."""

    def __init__(self, settings: FaultySettings) -> None:
        self.settings = settings
        self.asked: dict[int, int] = {}

    def values(self, trajectories: Sequence[Trajectory]) -> list[Any]:
        if self.settings.fault == "wrong_length" and any(map(is_bad, trajectories)):
            return [self.settings.good] * (len(trajectories) - 1)
        return [self.value(trajectory) for trajectory in trajectories]

    def value(self, trajectory: Trajectory) -> Any:
        if not is_bad(trajectory):
            return self.settings.good
        count = self.asked[trajectory.sibling] = self.asked.get(trajectory.sibling, 0) + 1
        return self.settings.good if count > self.settings.fails else say(self.settings.fault)


@dataclass(frozen=True, kw_only=True)
class OwnSettings(Settings):
    """A whole reward that fails for trajectories whose answer is `bad`."""

    implementation: ClassVar[str] = "faulty_parts:Own"

    fault: str
    """A kind of failure."""


class Own:
    """One trajectory at a time, as the simplest reward of a user."""

    def __init__(self, settings: OwnSettings) -> None:
        self.settings = settings

    def score(self, trajectory: Trajectory) -> Any:
        success = float(trajectory.outcome.get("passed", 0) == 2)
        if not is_bad(trajectory):
            return Score(total=1.0, success=success, parts={})
        return self.wrong(success)

    def wrong(self, success: float) -> Any:
        if self.settings.fault == "none":
            return None
        return Score(total=say(self.settings.fault), success=success, parts={})


@dataclass(frozen=True, kw_only=True)
class CountingSettings(Settings):
    """A whole reward with a memory: the number of trajectories so far."""

    implementation: ClassVar[str] = "faulty_parts:Counting"


class Counting:
    """Scores batches; a batch with a bad answer fails after half of it was counted."""

    def __init__(self, settings: CountingSettings) -> None:
        self.count = 0

    def score(self, trajectory: Trajectory) -> Score:
        self.count += 1
        if is_bad(trajectory):
            raise ValueError("bad")
        return Score(total=float(self.count), success=0.0, parts={})

    def score_many(self, trajectories: Sequence[Trajectory]) -> list[Score]:
        return [self.score(trajectory) for trajectory in trajectories]

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.count = state["count"]


def is_bad(trajectory: Trajectory) -> bool:
    """Whether the agent answered `bad`."""
    return any(turn.text == "bad" for turn in trajectory.turns)


def played(
    *texts: str, stop: Stop = Stop.DONE, tokens: int = 3, task: Task | None = None, **outcome: Any
) -> list[Trajectory]:
    """Siblings that gave these answers, all with one outcome."""
    task = task or Task(id="t1", messages=({"role": "user", "content": "what?"},))
    made = Generation(
        action_ids=list(range(tokens)), logprobs=np.zeros(tokens, np.float32), finish=Finish.STOP
    )
    return [
        Trajectory(
            task=task, sibling=i, stop=stop, outcome=outcome, policy_version=0,
            turns=(Turn(prompt_ids=[1], generation=made, text=text),),
        )
        for i, text in enumerate(texts)
    ]  # fmt: skip


def faulty(fault: str, fails: int = 99, **changed: Any) -> FaultySettings:
    """Settings of a faulty component."""
    return FaultySettings(**{**COMMON, **changed}, fault=fault, good=0.5, fails=fails)


def composite(**components: ComponentSettings) -> CompositeSettings:
    """Settings of a sum."""
    return CompositeSettings(components=components)
