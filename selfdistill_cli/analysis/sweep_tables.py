"""A sweep as tables, and the lines that stand under them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from selfdistill_cli.analysis.importance import FEW_POINTS, importance, levels_of
from selfdistill_cli.analysis.ledger import STATUSES
from selfdistill_cli.analysis.sweep_results import LEVEL, Axis, Point, SweepResults, scores_of
from selfdistill_cli.analysis.tables import NONE, Table

FEW_SEEDS = 5
MOST_ROWS = 12
"""A numeric axis with more values has one row for each part that importance compares."""


def sweep_tables(results: SweepResults) -> list[Table]:
    """Points, axes, importance, and cells without numbers; each only if it has rows."""
    by_axis = [_axis(results, axis) for axis in results.axes]
    found = [_points(results), *by_axis, _importance(results), _missing(results)]
    return [table for table in found if table.rows]


def notes(results: SweepResults) -> list[str]:
    """What a reader must know."""
    counts = {s: sum(cell.status == s for cell in results.cells) for s in STATUSES}
    shown = ", ".join(f"{number} {status}" for status, number in counts.items() if number)
    return [f"cells: {shown or 'none'}", *_doubts(results)]


def _doubts(results: SweepResults) -> Iterator[str]:
    ranked = results.ranked
    few = [p for p in ranked if len(p.scores) < FEW_SEEDS]
    if few:
        yield (
            f"{len(few)} of {len(ranked)} points have fewer than {FEW_SEEDS} seeds: their order "
            "may be chance, and intervals over so few are too narrow"
        )
    if any(p.num_missing for p in ranked):
        yield "a point's numbers are of its cells that ended well; `missing` counts the others"
    if len({len(p.scores) for p in ranked}) > 1:
        yield "points have different numbers of seeds; the best of many is flattered by few seeds"
    if len(ranked) > 1:
        yield "the best mean of several points is on average too good; measure it with new seeds"
    if results.axes and 1 < len(ranked) < FEW_POINTS:
        yield (
            f"importance is taken over {len(ranked)} points: below {FEW_POINTS} it is mostly chance"
        )


def _points(results: SweepResults) -> Table:
    keys = [axis.key for axis in results.axes]
    several = len(results.metrics) > 1
    rows = [
        (
            *(point.values[key] for key in keys),
            str(len(point.scores)),
            str(point.num_missing),
            *(_mean(point, k) for k in range(len(results.metrics))),
            *(_best(point, k, up) for k, up in enumerate(results.maximize)),
            *([str(point.front)] if several else []),
        )
        for point in results.ranked
    ]
    header = [*keys, "seeds", "missing", *results.metrics]
    header += [f"best seed: {metric}" for metric in results.metrics]
    return Table(
        title=f"points, best first: mean over seeds with {LEVEL:.0%} interval over seeds",
        header=(*header, *(["front"] if several else [])),
        rows=tuple(rows),
    )


def _axis(results: SweepResults, axis: Axis) -> Table:
    rows: list[tuple[str, ...]] = []
    for label, points in _parts(results, axis):
        cells = [label, str(len(points))]
        for k, up in enumerate(results.maximize):
            means = [point.means[k] for point in points]
            cells += [_number(fmean(means)), _number(max(means) if up else min(means))]
        rows.append(tuple(cells))
    columns = [f"{word} {m}" for m in results.metrics for word in ("mean", "best")]
    return Table(title=f"by {axis.key}", header=(axis.key, "points", *columns), rows=tuple(rows))


def _parts(results: SweepResults, axis: Axis) -> Iterator[tuple[str, list[Point]]]:
    """The points at each value of an axis, or in each part of one with many numbers."""
    values = [point.values[axis.key] for point in results.ranked]
    if axis.numeric and len(axis.values) > MOST_ROWS:
        keys = levels_of(axis, values)
    else:
        keys = [axis.values.index(value) for value in values]
    for key in sorted(set(keys)):
        inside = [i for i, other in enumerate(keys) if other == key]
        there = sorted({values[i] for i in inside}, key=axis.values.index)
        label = there[0] if len(there) == 1 else f"{there[0]} … {there[-1]}"
        yield label, [results.ranked[i] for i in inside]


def _importance(results: SweepResults) -> Table:
    own = ["by the search itself"] if results.own_importance else []
    rows: list[tuple[str, ...]] = []
    for axis in results.axes if len(results.ranked) > 1 else ():
        found = [importance(axis, results.ranked, k) for k in range(len(results.metrics))]
        cells = [axis.key, str(found[0].levels)]
        for one in found:
            cells += [_number(one.share), _number(one.adjusted)]
        rows.append((*cells, *(_number(results.own_importance.get(axis.key)) for _ in own)))
    columns = [f"{word}: {m}" for m in results.metrics for word in ("share", "adjusted")]
    return Table(
        title="importance: share of the variance between points that the axis alone accounts for "
        "(eta squared; adjusted for the number of values: epsilon squared)",
        header=("axis", "levels", *columns, *own),
        rows=tuple(rows),
    )


def _missing(results: SweepResults) -> Table:
    count = len(results.metrics)
    rows = [
        (cell.name, cell.status, _first_line(cell.error), cell.log)
        for cell in results.cells
        if scores_of(cell, count) is None
    ]
    return Table(
        title="cells without a number", header=("cell", "status", "error", "log"), rows=tuple(rows)
    )


def points_csv(results: SweepResults) -> str:
    """One line for each point, best first; empty where there is no number."""
    rows: list[dict[str, Any]] = []
    for rank, point in enumerate(results.points, start=1):
        row: dict[str, Any] = {"rank": rank if point.scores else None, **point.values}
        row |= {"seeds": len(point.scores), "missing": point.num_missing}
        for k, metric in enumerate(results.metrics):
            interval = point.intervals[k] if point.scores else None
            row[metric] = point.means[k] if point.scores else None
            row[f"{metric}_low"] = interval.low if interval else None
            row[f"{metric}_high"] = interval.high if interval else None
        rows.append({**row, "front": point.front or None})
    return _csv(rows)


def cells_csv(results: SweepResults) -> str:
    """One line for each cell."""
    rows: list[dict[str, Any]] = []
    for cell in results.cells:
        scores = scores_of(cell, len(results.metrics)) or (None,) * len(results.metrics)
        named = dict(zip(results.metrics, scores, strict=True))
        about = {"status": cell.status, "duration_s": cell.duration_s, "error": cell.error}
        rows.append({"cell": cell.name, **cell.values, **named, **about, "run": cell.run})
    return _csv(rows)


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _mean(point: Point, k: int) -> str:
    interval = point.intervals[k]
    shown = f" [{_number(interval.low)}, {_number(interval.high)}]" if interval else ""
    return f"{_number(point.means[k])}{shown}"


def _best(point: Point, k: int, maximize: bool) -> str:
    column = [scores[k] for scores in point.scores]
    return _number(max(column) if maximize else min(column))


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.4g}"


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0][:200]
