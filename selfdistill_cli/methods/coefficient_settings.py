"""Settings of coefficients: schedules of the step and controllers that follow a reading."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from selfdistill_cli.core.settings import Settings, in_range


@dataclass(frozen=True, kw_only=True)
class CoefficientSettings(Settings):
    """Base of everything that may stand where a coefficient is a number."""


@dataclass(frozen=True, kw_only=True)
class SpanSettings(CoefficientSettings):
    """A coefficient that moves from one value to another and then stays."""

    start: float
    """Value at step 1."""
    end: float
    """Value from step `steps` on."""
    steps: int
    """Steps from start to end."""

    def __post_init__(self) -> None:
        in_range(self, 0, inf, "steps")


@dataclass(frozen=True, kw_only=True)
class LinearSettings(SpanSettings):
    """Along a line."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.coefficients:Linear"


@dataclass(frozen=True, kw_only=True)
class CosineSettings(SpanSettings):
    """Along half a cosine."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.coefficients:Cosine"


@dataclass(frozen=True, kw_only=True)
class WarmupDecaySettings(CoefficientSettings):
    """A coefficient that rises linearly, then falls."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.coefficients:WarmupDecay"

    start: float
    """Value at step 1."""
    peak: float
    """Value after `warmup` steps."""
    end: float
    """Value after `warmup + decay` steps."""
    warmup: int
    """Steps from start to peak."""
    decay: int
    """Steps from peak to end."""
    cosine: bool
    """Fall along half a cosine instead of a line."""

    def __post_init__(self) -> None:
        in_range(self, 0, inf, "warmup", "decay")


@dataclass(frozen=True, kw_only=True)
class PlateauSettings(CoefficientSettings):
    """0 until the mean reward stops rising, then linear: a method that joins at the plateau."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.coefficients:Plateau"

    end: float
    """Value after the ramp."""
    steps: int
    """Steps of the ramp."""
    window: int
    """Steps that the mean reward is averaged over."""
    min_gain: float
    """A window counts as better if its mean reward exceeds the best one by this much."""
    patience: int
    """Steps without a better window after which the ramp starts."""

    def __post_init__(self) -> None:
        in_range(self, 1, inf, "window", "patience")
        in_range(self, 0, inf, "steps", "min_gain")


@dataclass(frozen=True, kw_only=True)
class PidSettings(CoefficientSettings):
    """A coefficient that keeps its own term, a KL in nats per token, at a target."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.coefficients:Pid"
    follows_own_term: ClassVar[bool] = True

    start: float
    """Value before the first reading."""
    target: float
    """Wanted mean of the term, in nats per token."""
    kp: float
    """Gain of the relative error."""
    ki: float
    """Gain of its sum."""
    kd: float
    """Gain of its change."""
    minimum: float
    """Smallest value."""
    maximum: float
    """Largest value."""
    integral_limit: float
    """Bound on the sum of errors, against windup."""

    def __post_init__(self) -> None:
        in_range(self, 1e-12, inf, "target")
        in_range(self, 0, inf, "start", "minimum", "maximum", "integral_limit")


@dataclass(frozen=True, kw_only=True)
class ProportionalSettings(CoefficientSettings):
    """The adaptive KL controller: multiplies by 1 + clip(KL / target - 1, -0.2, 0.2) / horizon."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.coefficients:Proportional"
    follows_own_term: ClassVar[bool] = True

    start: float
    """Value before the first reading."""
    target: float
    """Wanted mean of the term, in nats per token."""
    horizon: int
    """Steps in which a constant error of 20 % changes the coefficient by 20 %."""

    def __post_init__(self) -> None:
        in_range(self, 1e-12, inf, "target")
        in_range(self, 0, inf, "start")
        in_range(self, 1, inf, "horizon")
