"""Settings of the group `teacher`: it fills the view named `teacher`."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal

from selfdistill_cli.core.settings import Settings, ViewSettings, in_range


@dataclass(frozen=True, kw_only=True)
class NoTeacherSettings(Settings):
    """No teacher: no view named `teacher` exists."""

    implementation: ClassVar[str] = ""


@dataclass(frozen=True, kw_only=True)
class TeacherSettings(ViewSettings):
    """A teacher: the view named `teacher`."""

    implementation: ClassVar[str] = ""


@dataclass(frozen=True, kw_only=True)
class SignalSettings(ViewSettings):
    """A teacher that scores the student's likeliest next tokens instead of being a policy.

    `weights` is `policy` and `hints` is empty: the student itself proposes the candidates.
    """

    implementation: ClassVar[str] = ""
    is_signal: ClassVar[bool] = True

    candidates: int
    """Next tokens that are scored in every state."""
    temperature: float
    """Divides the scores; higher is smoother."""
    prior: Literal["student", "uniform"]
    """Multiply by the student's probabilities (equal scores then teach nothing), or not."""

    def __post_init__(self) -> None:
        in_range(self, 2, inf, "candidates")
        in_range(self, 1e-6, inf, "temperature")


@dataclass(frozen=True, kw_only=True)
class QValueSettings(SignalSettings):
    """The critic's value of the state after each candidate, as a distribution."""

    needs_critic: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class HeuristicSettings(SignalSettings):
    """Scores of a user's function `(task, answer so far, candidate texts) -> numbers`."""

    function: str
    """`module:function`, found in the current folder or beside the folder of --config-dir."""
