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
class ServedTeacherSettings(ViewSettings):
    """A frozen model behind an inference server, with the student's tokenizer.

    `weights` is `frozen` and `path` null: the server has weights of its own. It gives the
    log-probability of every sampled token and of the likeliest ones, at temperature 1.
    """

    implementation: ClassVar[str] = ""
    is_served: ClassVar[bool] = True

    url: str
    """Address of the server, such as http://host:8001."""
    model: str | None
    """Name of the model on the server; null = the only one that it serves."""
    requests_at_once: int
    """Requests of one rank that the server works on at the same time."""
    wait_s: float
    """Seconds to wait for a server that is starting."""
    timeout_s: float
    """Seconds in which the server must answer one request."""
    retries: int
    """How often a request is sent again after a server that failed or did not answer."""

    def __post_init__(self) -> None:
        in_range(self, 1, 4096, "requests_at_once")
        in_range(self, 0, inf, "wait_s")
        in_range(self, 0.1, inf, "timeout_s")
        in_range(self, 0, 100, "retries")


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
