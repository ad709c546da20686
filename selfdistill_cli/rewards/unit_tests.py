"""Reward of a program: the tests that it passed."""

from __future__ import annotations

from selfdistill_cli.core.types import Score, Trajectory
from selfdistill_cli.rewards.settings import UnitTestsSettings


class UnitTests:
    """Scores outcomes with `passed`, `total` and `compiled`."""

    def __init__(self, settings: UnitTestsSettings) -> None:
        """Keep the settings."""
        self._settings = settings

    def score(self, trajectory: Trajectory) -> Score:
        """Return total (by mode), success (1 if every test passed) and the parts.

        An outcome without these fields (the environment failed) gives no total, which rejects
        the trajectory: it is not the program's fault.
        """
        outcome = trajectory.outcome
        if not outcome.get("total"):
            return Score(total=None, success=0.0, parts={}, missing=("tests", "compiled"))
        fraction = outcome["passed"] / outcome["total"]
        success = float(outcome["passed"] == outcome["total"])
        total = fraction if self._settings.mode == "fraction" else success
        parts = {"tests": fraction, "compiled": float(outcome["compiled"])}
        if outcome.get("attempts_allowed", 1) > 1:
            first = outcome["passed_by_attempt"][0] == outcome["total"]
            parts |= {"first_attempt": float(first), "attempts": float(outcome["attempts"])}
        return Score(total=total, success=success, parts=parts)
