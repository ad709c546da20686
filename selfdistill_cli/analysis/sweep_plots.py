"""Pictures of a sweep: parallel coordinates, and the first objective along each axis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from selfdistill_cli.analysis.sweep_results import LEVEL, Axis, Point, SweepResults
from selfdistill_cli.core.statistics import Array

DOTS_PER_INCH = 110
COLUMNS = 3
LONGEST_LABEL = 18


def draw_parallel(results: SweepResults, path: Path) -> None:
    """One line for each point through its values and objectives; colour is the first objective."""
    points, axes = results.ranked, results.axes
    scales = [_scale(axis) for axis in axes]
    columns = [
        np.array([scale[point.values[axis.key]] for point in points])
        for axis, scale in zip(axes, scales, strict=True)
    ]
    names = [axis.key for axis in axes]
    for k, metric in enumerate(results.metrics):
        columns.append(_unit(np.array([point.means[k] for point in points])))
        names.append(metric)
    heights = np.stack(columns, axis=1)
    size = (2.2 * max(3, len(names)), 4.5)
    figure = Figure(figsize=size, dpi=DOTS_PER_INCH, layout="constrained")
    plot = figure.add_subplot()
    colours = matplotlib.colormaps["viridis"](heights[:, len(axes)])
    for row, colour in reversed(list(zip(heights, colours, strict=True))):  # the best one on top
        plot.plot(range(len(names)), row, color=colour, alpha=0.8, marker=".")
    for i, (axis, scale) in enumerate(zip(axes, scales, strict=True)):
        for value in _labelled(axis):
            plot.annotate(_short(value), (i, scale[value]), fontsize="x-small", ha="right")
    for k in range(len(results.metrics)):
        means = [point.means[k] for point in points]
        for height, value in {0.0: min(means), 1.0: max(means)}.items():
            at = (len(axes) + k, height if max(means) > min(means) else 0.5)
            plot.annotate(f"{value:.4g}", at, fontsize="x-small", ha="left")
    plot.set_xticks(range(len(names)), [_short(name) for name in names], fontsize="small")
    plot.set_yticks([])
    plot.set_xlim(-0.5, len(names) - 0.5)
    plot.set_title(f"each line a point (mean over seeds); colour: {results.metrics[0]}",
                   fontsize="medium")  # fmt: skip
    figure.savefig(path)


def draw_axes(results: SweepResults, path: Path) -> None:
    """The first objective of every point along each axis, with intervals over seeds."""
    axes = results.axes
    rows = -(-len(axes) // COLUMNS)
    columns = min(COLUMNS, len(axes))
    size = (max(6.0, 4.2 * columns), 3.2 * rows)
    figure = Figure(figsize=size, dpi=DOTS_PER_INCH, layout="constrained")
    for number, axis in enumerate(axes, start=1):
        plot = figure.add_subplot(rows, columns, number)
        _draw_axis(plot, axis, results)
    title = f"{results.metrics[0]}: mean over seeds, {LEVEL:.0%} interval"
    figure.suptitle(title, fontsize="medium")
    figure.savefig(path)


def _draw_axis(plot: Any, axis: Axis, results: SweepResults) -> None:
    for point in results.ranked:
        text = point.values[axis.key]
        place = float(text) if axis.numeric else axis.values.index(text)
        low, high = _ends(point)
        plot.errorbar([place], [point.means[0]], [[low], [high]], fmt="o", color="C0", alpha=0.6,
                      markersize=4)  # fmt: skip
    if axis.log:
        plot.set_xscale("log")
    elif not axis.numeric:
        plot.set_xticks(range(len(axis.values)), [_short(v) for v in axis.values], fontsize="small")
        plot.set_xlim(-0.5, len(axis.values) - 0.5)
    plot.set_xlabel(axis.key, fontsize="small")
    plot.grid(alpha=0.3)


def _ends(point: Point) -> tuple[float, float]:
    """Lengths of the two arms of an error bar."""
    interval = point.intervals[0]
    if interval is None:
        return 0.0, 0.0
    return max(0.0, point.means[0] - interval.low), max(0.0, interval.high - point.means[0])


def _scale(axis: Axis) -> dict[str, float]:
    """Heights in [0, 1] of the values of an axis."""
    if axis.numeric:
        numbers = np.array([float(value) for value in axis.values])
        heights = _unit(np.log(numbers) if axis.log else numbers)
    else:
        heights = _unit(np.arange(len(axis.values), dtype=np.float64))
    return {value: float(h) for value, h in zip(axis.values, heights, strict=True)}


def _unit(values: Array) -> Array:
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.full(len(values), 0.5)


def _labelled(axis: Axis) -> tuple[str, ...]:
    """All values, or the ends of an axis with many."""
    return axis.values if len(axis.values) <= 8 else (axis.values[0], axis.values[-1])


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_LABEL else f"…{text[-LONGEST_LABEL:]}"
