"""A reward of one's own: the share of tests passed, minus a price per character."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from selfdistill_cli.core.settings import Settings, in_range
from selfdistill_cli.core.types import Score, Trajectory


@dataclass(frozen=True, kw_only=True)
class ShortProgramsSettings(Settings):
    """Tests passed, minus a price for length."""

    implementation: ClassVar[str] = "short_programs:ShortPrograms"

    price: float
    """Taken off for every character of the program."""
    most: float
    """Largest deduction."""

    def __post_init__(self) -> None:
        in_range(self, 0, 1, "price", "most")


class ShortPrograms:
    """Reads the outcome of env=code: `passed`, `total`, `program`."""

    def __init__(self, settings: ShortProgramsSettings):
        self.settings = settings

    def score(self, trajectory: Trajectory) -> Score:
        """Total with the deduction; success without it. No tests were run: no total."""
        outcome = trajectory.outcome
        if not outcome.get("total"):
            return Score(total=None, success=0.0, parts={}, missing=("tests",))
        tests = outcome["passed"] / outcome["total"]
        length = min(self.settings.price * len(outcome["program"]), self.settings.most)
        return Score(
            total=tests - length,
            success=float(tests == 1.0),
            parts={"tests": tests, "length": -length},
        )
