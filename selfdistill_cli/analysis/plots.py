"""Curves of a comparison."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from selfdistill_cli.analysis.comparison import LEVEL, Comparison

INCHES = (7.0, 4.5)
DOTS_PER_INCH = 130


def draw_curves(comparison: Comparison, path: Path) -> None:
    """Write success over environment interactions as PNG, with bands over seeds.

    A method without episodes is a dashed line at the success that it ended with.
    """
    # A figure of its own, not pyplot: no window, no global state.
    figure = Figure(figsize=INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    axes = figure.add_subplot()
    for number, result in enumerate(comparison.results):
        curve, colour = result.curve, f"C{number}"
        label = f"{result.label} ({len(result.seeds)} seed{'s' * (len(result.seeds) > 1)})"
        if curve.episodes[-1] > 0:
            axes.plot(curve.episodes, curve.success, color=colour, label=label, marker=".")
            axes.fill_between(curve.episodes, curve.low, curve.high, color=colour, alpha=0.2, lw=0)
        else:
            axes.axhline(curve.success[-1], color=colour, label=f"{label}, end", linestyle="--")
            axes.axhspan(curve.low[-1], curve.high[-1], color=colour, alpha=0.2, lw=0)
    axes.set_xlabel("environment interactions (episodes)")
    axes.set_ylabel("success on the panel")
    axes.set_title(f"mean over seeds, {LEVEL:.0%} interval over seeds", fontsize="medium")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(path)
