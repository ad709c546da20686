"""How much of a result each axis of a sweep accounts for: main effects over points.

The share is eta squared: the variance between the means of an axis's values, over the variance of
all points (means over seeds), both unweighted. It rises with the number of values by chance alone;
the adjusted share is epsilon squared (T. L. Kelley, PNAS 1935), which does not, and may be
negative. In a grid, where every combination was run, the shares of different axes add up to at
most 1; what is left are interactions and the spread of seeds. In a random search values of
different axes happen to go together, and shares overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from selfdistill_cli.analysis.sweep_results import Axis, Point
from selfdistill_cli.core.statistics import Array

MOST_LEVELS = 4
"""A numeric axis with more values is cut into this many parts with equally many points."""
FEW_POINTS = 12
"""With fewer points shares are mostly chance, and the report says so."""


@dataclass(frozen=True, kw_only=True)
class Importance:
    """What one axis accounts for."""

    key: str
    """The axis."""
    levels: int
    """Values, or parts of the axis, that were compared."""
    share: float | None
    """Eta squared; None if all points are equal or the axis has one value."""
    adjusted: float | None
    """Epsilon squared; None where there are no more points than levels."""


def importance(axis: Axis, points: Sequence[Point], objective: int) -> Importance:
    """The main effect of an axis on one objective; `points` have numbers."""
    values = np.array([point.means[objective] for point in points], dtype=np.float64)
    labels = levels_of(axis, [point.values[axis.key] for point in points])
    names = sorted(set(labels))
    total = float(((values - values.mean()) ** 2).sum()) if len(values) else 0.0
    scale = float((values**2).sum()) if len(values) else 0.0
    if len(names) < 2 or total <= 1e-24 * scale:
        return Importance(key=axis.key, levels=len(names), share=None, adjusted=None)
    within = sum(_spread(values[np.array([label == n for label in labels])]) for n in names)
    free = len(values) - len(names)
    adjusted = None if free < 1 else 1 - (within / free) / (total / (len(values) - 1))
    return Importance(
        key=axis.key, levels=len(names), share=1 - within / total, adjusted=adjusted
    )


def levels_of(axis: Axis, values: Sequence[str]) -> list[int]:
    """The level of each point: its value, or on a long numeric axis the quantile it lies in."""
    if not axis.numeric or len(axis.values) <= MOST_LEVELS:
        return [axis.values.index(value) for value in values]
    numbers = np.array([float(value) for value in values])
    edges = np.quantile(numbers, np.linspace(0, 1, MOST_LEVELS + 1)[1:-1])
    return [int(level) for level in np.searchsorted(edges, numbers, side="left")]


def _spread(values: Array) -> float:
    return float(((values - values.mean()) ** 2).sum())
