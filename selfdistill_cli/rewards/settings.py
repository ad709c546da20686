"""Settings of the rewards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from selfdistill_cli.core.settings import Settings


@dataclass(frozen=True, kw_only=True)
class UnitTestsSettings(Settings):
    """The tests that a program passed."""

    implementation: ClassVar[str] = "selfdistill_cli.rewards.unit_tests:UnitTests"

    mode: Literal["fraction", "all_or_nothing"]
    """Reward the fraction of tests passed, or 1 only if all passed."""


@dataclass(frozen=True, kw_only=True)
class OutcomeSettings(Settings):
    """What the environment says at the end: success, progress, well-formed actions."""

    implementation: ClassVar[str] = "selfdistill_cli.rewards.outcome:Outcome"

    weights: dict[str, float]
    """Weight of each number of the outcome in the total."""
