"""Reward of an agent: a weighted sum of what its environment says at the end."""

from __future__ import annotations

from selfdistill_cli.core.types import Score, Trajectory
from selfdistill_cli.rewards.settings import OutcomeSettings


class Outcome:
    """Scores outcomes with `success` and other numbers."""

    def __init__(self, settings: OutcomeSettings) -> None:
        """Keep the settings."""
        self._weights = settings.weights

    def score(self, trajectory: Trajectory) -> Score:
        """Return total (weights times numbers), success, and the numbers as parts.

        A number that the environment does not give is missing and adds 0. An outcome without
        `success` (the environment failed) gives no total, which rejects the trajectory.
        """
        outcome = trajectory.outcome
        if "success" not in outcome:
            return Score(total=None, success=0.0, parts={}, missing=tuple(self._weights))
        parts = {name: float(outcome[name]) for name in self._weights if name in outcome}
        total = sum(self._weights[name] * value for name, value in parts.items())
        missing = tuple(name for name in self._weights if name not in parts)
        return Score(total=total, success=float(outcome["success"]), parts=parts, missing=missing)
