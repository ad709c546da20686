"""What the rewards read of a trajectory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from selfdistill_cli.core.types import Trajectory

MASKED: Any = type("Masked", (), {"__repr__": lambda self: "MASKED"})()
"""A component says of a trajectory: not mine to judge. Counted as missing, not as an error."""


def success_of(outcome: Mapping[str, Any]) -> float:
    """The environment's own success: all tests passed, or the outcome's `success` in [0, 1]."""
    if outcome.get("total"):
        return float(outcome.get("passed") == outcome["total"])
    success = outcome.get("success", 0.0)
    known = isinstance(success, int | float) and math.isfinite(success)
    return min(max(float(success), 0.0), 1.0) if known else 0.0


def num_tokens(trajectory: Trajectory) -> int:
    """Tokens that the agent sampled, over all turns."""
    return sum(len(turn.generation.action_ids) for turn in trajectory.turns)


def answer_of(trajectory: Trajectory) -> str:
    """The text of the last turn."""
    return trajectory.turns[-1].text if trajectory.turns else ""


def program_of(trajectory: Trajectory) -> str:
    """The program that the environment found in the answer, else the answer itself."""
    program = trajectory.outcome.get("program")
    return program if isinstance(program, str) else answer_of(trajectory)


def prompt_of(trajectory: Trajectory) -> str:
    """The task's messages as text."""
    return "\n\n".join(message["content"] for message in trajectory.task.messages)


def each(score: Any, trajectories: Sequence[Trajectory]) -> list[Any]:
    """One value per trajectory from a function of one."""
    return [score(trajectory) for trajectory in trajectories]
