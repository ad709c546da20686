"""Arithmetic of composite rewards. Pure functions over plain numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

ROUNDING = 1e-6
"""Relative spread below which values that a model computed in float32 are equal."""


@dataclass(frozen=True, kw_only=True)
class Component:
    """How one named component enters the total."""

    name: str
    """Key of the component's value."""
    weight: float
    """Factor applied last."""
    scale: float
    """Factor applied after normalising and before clipping."""
    clip: tuple[float, float] | None
    """Bounds of the scaled value, or None."""
    normalize: bool
    """Subtract the running mean and divide by the running standard deviation."""


@dataclass(frozen=True, kw_only=True)
class RunningMoments:
    """Count, mean and sum of squared deviations of the values so far."""

    count: int = 0
    """Values seen."""
    mean: float = 0.0
    """Their mean."""
    m2: float = 0.0
    """Their summed squared deviations from the mean."""

    def updated(self, value: float) -> RunningMoments:
        """Return the moments with one more value (Welford, Technometrics 4(3), 1962)."""
        count = self.count + 1
        delta = value - self.mean
        mean = self.mean + delta / count
        return RunningMoments(count=count, mean=mean, m2=self.m2 + delta * (value - mean))

    def normalized(self, value: float) -> float:
        """Return `(value - mean) / (std + 1e-8)` with the sample std; 0 for fewer than 2 values.

        0, too, where all values are equal up to the rounding of float32: a learned score depends
        that much on what it was batched with, and this would make it as large as any difference.
        """
        std = math.sqrt(self.m2 / (self.count - 1)) if self.count > 1 else 0.0
        if std <= ROUNDING * max(abs(value), abs(self.mean)):
            return 0.0
        return (value - self.mean) / (std + 1e-8)


def composite(
    values: Mapping[str, float | None],
    components: Sequence[Component],
    moments: Mapping[str, RunningMoments],
) -> tuple[float, dict[str, float], dict[str, RunningMoments]]:
    """Return total, weighted parts and new moments of one sample.

    value, normalised by moments that already contain it, times scale, clipped, times weight. A
    component that is missing or None contributes 0 and does not update its moments.
    """
    parts: dict[str, float] = {}
    after = dict(moments)
    for component in components:
        value = values.get(component.name)
        if value is None:
            parts[component.name] = 0.0
            continue
        if component.normalize:
            seen = after.get(component.name, RunningMoments()).updated(value)
            after[component.name] = seen
            value = seen.normalized(value)
        parts[component.name] = _weighted(component, value)
    return sum(parts.values()), parts, after


def composite_batch(
    rows: Sequence[Mapping[str, float | None]],
    components: Sequence[Component],
    moments: Mapping[str, RunningMoments],
) -> tuple[list[float], dict[str, RunningMoments]]:
    """Return the totals and new moments of a batch, whose samples share their moments.

    As `composite`, but all values update the moments, in order, before the first is normalised:
    equal values have equal totals, so that a group of equal siblings stays flat. A batch of one
    is what `composite` says.
    """
    after = dict(moments)
    for component in components:
        if component.normalize:
            seen = after.get(component.name, RunningMoments())
            for value in (row.get(component.name) for row in rows):
                seen = seen if value is None else seen.updated(value)
            if seen.count:
                after[component.name] = seen
    return [sum(_parts(row, components, after)) for row in rows], after


def _parts(
    row: Mapping[str, float | None],
    components: Sequence[Component],
    moments: Mapping[str, RunningMoments],
) -> Iterator[float]:
    """Weighted values of one sample, normalised by moments that contain it already."""
    for component in components:
        value = row.get(component.name)
        if value is not None:
            value = moments[component.name].normalized(value) if component.normalize else value
            yield _weighted(component, value)


def _weighted(component: Component, value: float) -> float:
    value *= component.scale
    if component.clip is not None:
        value = min(max(value, component.clip[0]), component.clip[1])
    return component.weight * value


def dense_code_reward(
    *,
    compiled: bool,
    passed: int,
    length: float,
    compile_bonus: float,
    per_test: float,
    max_tests: int,
    length_coef: float,
    length_cap: float,
) -> float:
    """Return `bonus + per_test * min(passed, max_tests)` if compiled, minus a capped length cost.

    `length` and `length_coef` are in the same unit, for example tokens.
    """
    reward = compile_bonus + per_test * min(passed, max_tests) if compiled else 0.0
    return reward - min(length_coef * length, length_cap)


def overlong_penalty(length: int, max_len: int, cache_len: int) -> float:
    """Return the soft overlong penalty of DAPO (arXiv 2503.14476, eq. 13), in [-1, 0].

    0 up to `max_len - cache_len` tokens, then linear to -1 at `max_len`, and -1 beyond.
    """
    free = max_len - cache_len
    if length <= free:
        return 0.0
    return (free - length) / cache_len if length <= max_len else -1.0
