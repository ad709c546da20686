"""Schedules, as functions of a step counted from 0, and controllers of a coefficient beta."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

DecayKind = Literal["linear", "cosine"]

_MAX_GROWTH = 700.0
"""Bound on the exponent of one update of beta; exp(710) is no longer a double."""


def linear(n: int, start: float, end: float, total: int) -> float:
    """Straight from `start` at n <= 0 to `end` at n >= total, both exact; `end` if total <= 0."""
    return _between(n, start, end, total, share=n / max(1, total))


def cosine(n: int, start: float, end: float, total: int) -> float:
    """Half a cosine wave from `start` to `end`, with the ends of `linear`."""
    share = 0.5 * (1.0 - math.cos(math.pi * n / max(1, total)))
    return _between(n, start, end, total, share=share)


def _between(n: int, start: float, end: float, total: int, share: float) -> float:
    if total <= 0 or n >= total:
        return end
    return start if n <= 0 else start + (end - start) * share


def warmup_decay(
    n: int, init: float, peak: float, end: float, warmup: int, decay: int, decay_kind: DecayKind
) -> float:
    """Linear from `init` to `peak` over `warmup` steps, then down to `end` over `decay` steps."""
    if n < warmup:
        return linear(n, init, peak, warmup)
    fall = linear if decay_kind == "linear" else cosine
    return fall(n - warmup, peak, end, decay)


@dataclass(frozen=True, kw_only=True)
class PidState:
    """What a PID controller remembers from one reading to the next."""

    beta: float
    """The coefficient."""
    integral: float = 0.0
    """Sum of the relative errors, bounded; 0 after a reset."""
    previous_error: float | None = None
    """Relative error of the last finite reading; None before the first and after a reset."""
    derivative: float | None = None
    """Change of the error at the last reading, for the log; None if there was no finite one."""


def pid_update(
    state: PidState,
    kl: float,
    synced: bool,
    *,
    target: float,
    kp: float,
    ki: float,
    kd: float,
    beta_min: float,
    beta_max: float,
    integral_max: float,
) -> PidState:
    """State after one reading of the divergence (nats per token, like `target`).

    e = (kl - target) / target; beta *= exp(kp e + ki I + kd de), kept in [beta_min, beta_max];
    I is kept in +-integral_max. `synced` says that the teacher was copied before this reading:
    I and the previous error are forgotten, beta is not. de = 0 at a first reading. A reading
    that is not finite changes nothing else.
    """
    if synced:
        state = replace(state, integral=0.0, previous_error=None)
    if not math.isfinite(kl):
        return replace(state, derivative=None)
    error = (kl - target) / target
    integral = _clip(state.integral + error, -integral_max, integral_max)
    derivative = 0.0 if state.previous_error is None else error - state.previous_error
    exponent = _clip(kp * error + ki * integral + kd * derivative, -_MAX_GROWTH, _MAX_GROWTH)
    return PidState(
        beta=_clip(state.beta * math.exp(exponent), beta_min, beta_max),
        integral=integral,
        previous_error=error,
        derivative=derivative,
    )


def proportional_update(
    beta: float, kl: float, target: float, num_steps: int, horizon: int
) -> float:
    """beta * (1 + clip(kl / target - 1, -0.2, 0.2) num_steps / horizon) (arXiv 1909.08593, 2.2).

    A reading that is not finite leaves beta as it is.
    """
    if not math.isfinite(kl):
        return beta
    return beta * (1.0 + _clip(kl / target - 1.0, -0.2, 0.2) * num_steps / horizon)


def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
