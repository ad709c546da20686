"""Coefficients: a number or a schedule, read once a step."""

from __future__ import annotations

from collections.abc import Callable

from selfdistill_cli.methods.settings import LinearSettings

Coefficient = Callable[[int], float]


class Linear:
    """Linear from `start` at step 1 to `end` at step `steps`, constant afterwards."""

    def __init__(self, settings: LinearSettings):
        self.settings = settings

    def __call__(self, step: int) -> float:
        """Value at a step counted from 1."""
        s = self.settings
        if s.steps <= 1 or step >= s.steps:
            return s.end
        return s.start + (s.end - s.start) * (max(step, 1) - 1) / (s.steps - 1)


def coefficient(value: float | LinearSettings) -> Coefficient:
    """Return the function of the step that a setting describes."""
    if isinstance(value, LinearSettings):
        return value.build()
    number = float(value)
    return lambda step: number


def is_zero(value: float | LinearSettings) -> bool:
    """Whether a coefficient is 0 at every step, so that its inputs need not be computed."""
    return not isinstance(value, LinearSettings) and float(value) == 0.0
