"""Coefficients: a number, a schedule of the step, or a controller that follows a reading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from selfdistill_cli.core.protocols import Coefficient, Readings
from selfdistill_cli.losses import schedules
from selfdistill_cli.methods.coefficient_settings import (
    CoefficientSettings,
    CosineSettings,
    LinearSettings,
    PidSettings,
    PlateauSettings,
    ProportionalSettings,
    WarmupDecaySettings,
)
from selfdistill_cli.methods.stateless import Stateless


class Schedule(Stateless):
    """A coefficient that depends on the step alone."""

    def observe(self, measured: float | None, readings: Readings, synced: bool) -> None:
        """Follows no reading."""


class Constant(Schedule):
    """The same number at every step."""

    def __init__(self, value: float):
        self.value = float(value)

    def __call__(self, step: int) -> float:
        """The number."""
        return self.value


class Linear(Schedule):
    """Linear from `start` at step 1 to `end` at step `steps`, constant afterwards."""

    def __init__(self, settings: LinearSettings):
        self.settings = settings

    def __call__(self, step: int) -> float:
        """Value at a step counted from 1."""
        s = self.settings
        return schedules.linear(step - 1, s.start, s.end, s.steps - 1)


class Cosine(Schedule):
    """Half a cosine from `start` at step 1 to `end` at step `steps`, constant afterwards."""

    def __init__(self, settings: CosineSettings):
        self.settings = settings

    def __call__(self, step: int) -> float:
        """Value at a step counted from 1."""
        s = self.settings
        return schedules.cosine(step - 1, s.start, s.end, s.steps - 1)


class WarmupDecay(Schedule):
    """Linear rise, then a fall along a line or half a cosine."""

    def __init__(self, settings: WarmupDecaySettings):
        self.settings = settings

    def __call__(self, step: int) -> float:
        """Value at a step counted from 1."""
        s = self.settings
        kind = "cosine" if s.cosine else "linear"
        return schedules.warmup_decay(step - 1, s.start, s.peak, s.end, s.warmup, s.decay, kind)


class Plateau:
    """0 until the mean reward stops rising, then a linear ramp to `end`."""

    def __init__(self, settings: PlateauSettings):
        self.settings = settings
        self.recent: list[float] = []
        self.best: float | None = None
        self.stale = 0
        self.started: int | None = None

    def __call__(self, step: int) -> float:
        """Value at a step counted from 1."""
        if self.started is None:
            return 0.0
        return schedules.linear(step - self.started, 0.0, self.settings.end, self.settings.steps)

    def observe(self, measured: float | None, readings: Readings, synced: bool) -> None:
        """Watch the mean reward until the ramp has started."""
        s = self.settings
        if self.started is not None or readings.reward is None:
            return
        self.recent = [*self.recent, readings.reward][-s.window :]
        if len(self.recent) < s.window:
            return
        mean = sum(self.recent) / len(self.recent)
        if self.best is None or mean > self.best + s.min_gain:
            self.best, self.stale = mean, 0
        else:
            self.stale += 1
        if self.stale >= s.patience:
            self.started = readings.step

    def state_dict(self) -> dict[str, Any]:
        """Window, best mean, steps without a better one, start of the ramp."""
        names = ("recent", "best", "stale", "started")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for name, value in state.items():
            setattr(self, name, value)


class Pid:
    """Multiplicative PID controller of a KL; the specification's, after adaptive-KL PPO.

    e = (KL - target) / target; value *= exp(kp e + ki sum(e) + kd change(e)). Sum and change are
    forgotten when the slow copy was fully copied, because the KL then drops for another reason.
    """

    def __init__(self, settings: PidSettings):
        self.settings = settings
        self.state = schedules.PidState(beta=settings.start)

    def __call__(self, step: int) -> float:
        """The value, whatever the step."""
        return self.state.beta

    def observe(self, measured: float | None, readings: Readings, synced: bool) -> None:
        """Move by the mean of the own term."""
        s = self.settings
        if measured is None:
            return
        self.state = schedules.pid_update(
            self.state,
            measured,
            synced,
            target=s.target,
            kp=s.kp,
            ki=s.ki,
            kd=s.kd,
            beta_min=s.minimum,
            beta_max=s.maximum,
            integral_max=s.integral_limit,
        )

    def state_dict(self) -> dict[str, Any]:
        """Value, sum of errors, previous error."""
        return dict(self.state.__dict__)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.state = schedules.PidState(**state)


class Proportional:
    """value *= 1 + clip(KL / target - 1, -0.2, 0.2) / horizon, once a step."""

    def __init__(self, settings: ProportionalSettings):
        self.settings = settings
        self.value = settings.start

    def __call__(self, step: int) -> float:
        """The value, whatever the step."""
        return self.value

    def observe(self, measured: float | None, readings: Readings, synced: bool) -> None:
        """Move by the mean of the own term."""
        s = self.settings
        if measured is not None:
            self.value = schedules.proportional_update(self.value, measured, s.target, 1, s.horizon)

    def state_dict(self) -> dict[str, Any]:
        """The value."""
        return {"value": self.value}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.value = float(state["value"])


def coefficient(value: float | CoefficientSettings) -> Coefficient:
    """Return the coefficient that a setting describes."""
    return value.build() if isinstance(value, CoefficientSettings) else Constant(value)


def is_zero(value: float | CoefficientSettings) -> bool:
    """Whether a coefficient is 0 at every step, so that its inputs need not be computed."""
    return not isinstance(value, CoefficientSettings) and float(value) == 0.0
