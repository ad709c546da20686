"""What a sweep found: cells joined over their seeds, then ranked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from selfdistill_cli.analysis.ledger import Cell, Ledger
from selfdistill_cli.core.statistics import Interval, bootstrap_interval

LEVEL = 0.95
REPETITIONS = 2000
SEED = 0
SEED_KEY = "seed"
WIDE = 50.0
"""From this ratio of its largest to its smallest value on an axis is logarithmic."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A swept key, the seed left out."""

    key: str
    """As it was typed."""
    values: tuple[str, ...]
    """Numbers in order, words as they came."""
    numeric: bool
    """Whether all values are numbers."""
    log: bool
    """Whether the numbers are best seen on a logarithmic scale."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """Cells that differ in their seeds only."""

    values: Mapping[str, str]
    """Value of each axis."""
    cells: tuple[Cell, ...]
    """All of them, ended well or not."""
    scores: tuple[tuple[float, ...], ...]
    """K objectives of each of the S cells that ended with numbers."""
    means: tuple[float, ...]
    """Mean over seeds of each objective; empty without scores."""
    intervals: tuple[Interval | None, ...]
    """Over seeds; None with one seed."""
    front: int
    """1 if no other point is better in everything, 2 if only such points are, and so on; 0 with
    one objective, where the order says it all."""

    @property
    def num_missing(self) -> int:
        """Cells without numbers."""
        return len(self.cells) - len(self.scores)


@dataclass(frozen=True, kw_only=True)
class SweepResults:
    """A sweep as its folder tells it."""

    name: str
    """Name of the folder."""
    metrics: tuple[str, ...]
    """What was measured, K of them."""
    maximize: tuple[bool, ...]
    """Whether more of each is better."""
    how: str
    """What of the metric counts: final, best, auc."""
    axes: tuple[Axis, ...]
    """In the order of the command line."""
    points: tuple[Point, ...]
    """Best first; those without numbers last."""
    cells: tuple[Cell, ...]
    """All cells."""
    own_importance: Mapping[str, float]
    """What the search itself says of its axes, if it does."""

    @property
    def ranked(self) -> tuple[Point, ...]:
        """Points with numbers, best first."""
        return tuple(point for point in self.points if point.scores)


def read_sweep(folder: Path) -> SweepResults:
    """Read the directory of a sweep; raises DataError."""
    ledger = Ledger(folder)
    plan, cells = ledger.plan(), tuple(ledger.cells().values())
    metrics = _several(plan.get("metric", "objective"))
    directions = _several(plan.get("direction", "maximize"))
    maximize = tuple(
        directions[min(i, len(directions) - 1)] != "minimize" for i in range(len(metrics))
    )
    axes = _axes(plan, cells)
    groups: dict[tuple[str, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(tuple(cell.values.get(a.key, "") for a in axes), []).append(cell)
    points = [_point(axes, values, found, len(metrics)) for values, found in groups.items()]
    return SweepResults(
        name=folder.resolve().name,
        metrics=metrics,
        maximize=maximize,
        how=str(plan.get("objective", "")),
        axes=axes,
        points=_ranked(points, maximize),
        cells=cells,
        own_importance={str(k): float(v) for k, v in plan.get("importance", {}).items()},
    )


def number(text: str) -> float | None:
    """The finite number that a text is, if it is one."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def scores_of(cell: Cell, count: int) -> tuple[float, ...] | None:
    """The objectives of a cell that ended with `count` finite ones."""
    found = cell.objective if isinstance(cell.objective, list) else [cell.objective]
    whole = len(found) == count and all(v is not None and math.isfinite(v) for v in found)
    if cell.status != "done" or not whole:
        return None
    return tuple(float(v) for v in found if v is not None)


def _several(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else (str(value),)


def _axes(plan: Mapping[str, Any], cells: Sequence[Cell]) -> tuple[Axis, ...]:
    """Axes in the order of the cells, whose values are those that came up in a search."""
    keys = dict.fromkeys([*(key for c in cells for key in c.values), *plan.get("axes", {})])
    found: list[Axis] = []
    for key in keys:
        values = list(dict.fromkeys(cell.values.get(key, "") for cell in cells))
        if key.lstrip("+") == SEED_KEY or not values:
            continue
        numbers = [n for n in map(number, values) if n is not None]
        numeric = len(numbers) == len(values)
        log = numeric and min(numbers) > 0 and max(numbers) / min(numbers) >= WIDE
        ordered = sorted(values, key=float) if numeric else values
        found.append(Axis(key=key, values=tuple(ordered), numeric=numeric, log=log))
    return tuple(found)


def _point(axes: Sequence[Axis], values: Sequence[str], cells: Sequence[Cell], k: int) -> Point:
    scores = [s for s in (scores_of(cell, k) for cell in cells) if s is not None]
    columns = list(zip(*scores, strict=True))
    return Point(
        values={axis.key: value for axis, value in zip(axes, values, strict=True)},
        cells=tuple(cells),
        scores=tuple(scores),
        means=tuple(fmean(column) for column in columns),
        intervals=tuple(_interval(column) for column in columns),
        front=0,
    )


def _interval(values: Sequence[float]) -> Interval | None:
    if len(values) < 2:
        return None
    return bootstrap_interval([values], "mean", reps=REPETITIONS, seed=SEED, level=LEVEL)


def _ranked(points: Sequence[Point], maximize: Sequence[bool]) -> tuple[Point, ...]:
    """By fronts, within a front by the first objective. With one objective: by its mean."""
    left = [point for point in points if point.scores]
    missing = [point for point in points if not point.scores]
    signed = {
        id(p): tuple(m if up else -m for m, up in zip(p.means, maximize, strict=True)) for p in left
    }
    if len(maximize) == 1:
        return (*sorted(left, key=lambda p: -signed[id(p)][0]), *missing)
    ranked: list[Point] = []
    front = 0
    while left:
        front += 1
        best = [p for p in left if not any(_beats(signed[id(o)], signed[id(p)]) for o in left)]
        ranked += [replace(p, front=front) for p in sorted(best, key=lambda p: -signed[id(p)][0])]
        left = [p for p in left if p not in best]
    return (*ranked, *missing)


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    pairs = list(zip(one, other, strict=True))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)
