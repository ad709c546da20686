"""Methods side by side: every number of `selfdistill compare`, with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from selfdistill_cli.analysis.grouping import (
    RunGroup,
    check_panels,
    group_runs,
    protocol_differences,
)
from selfdistill_cli.analysis.run_record import RunRecord
from selfdistill_cli.core.errors import UserError, did_you_mean
from selfdistill_cli.core.statistics import (
    Array,
    Interval,
    area_under_curve,
    bootstrap_interval,
    crossed_difference,
    crossed_interval,
    interquartile_mean,
    probability_of_improvement,
)

LEVEL = 0.95
REPETITIONS = 2000
SEED = 0
DEFAULT_BASELINE = "grpo"
LAST_METRICS = ("teacher/kl", "policy/approx_kl")
PHASES = ("act", "judge", "learn", "follow", "step")


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Success over environment interactions."""

    episodes: tuple[float, ...]
    """Episodes played before each evaluation."""
    success: tuple[float, ...]
    """Mean over runs."""
    low: tuple[float, ...]
    """Lower end of the interval over runs; the mean itself if there is one run."""
    high: tuple[float, ...]
    """Upper end."""


@dataclass(frozen=True, kw_only=True)
class Against:
    """A method against the baseline."""

    difference: Interval
    """Success at the end minus the baseline's."""
    probability_of_improvement: float
    """Chance that a run beats one of the baseline at a task, ties count half."""


@dataclass(frozen=True, kw_only=True)
class MethodResult:
    """One row of the table."""

    label: str
    """The method, and what tells it from other groups of the same method."""
    runs: tuple[str, ...]
    """Names of the S runs."""
    seeds: tuple[int, ...]
    """Their seeds."""
    start: Interval
    """Success before the first step."""
    end: Interval
    """Success at the last evaluation."""
    gain: Interval
    """End minus start of the same runs and tasks."""
    interquartile_mean: float
    """Interquartile mean over runs of the success at the end."""
    area: Interval | None
    """Mean height of the curve up to the common budget; None without episodes."""
    last_metrics: dict[str, float]
    """Last value of the divergences that were logged, mean over runs."""
    response_length: float
    """Sampled tokens per attempt at the end, mean over runs."""
    seconds: dict[str, float]
    """Median over all steps of all runs, by phase; `step` is the whole step."""
    against: Against | None
    """Against the baseline; None for the baseline itself or without one."""
    curve: Curve
    """Success over episodes."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All rows and what holds for all of them."""

    panel: tuple[str, ...]
    """What was measured, and how."""
    budget: int | None
    """Episodes up to which areas are taken: the shortest run's; None without episodes."""
    baseline: str | None
    """Label of the baseline."""
    results: tuple[MethodResult, ...]
    """One for each group of runs, in the order of the command line."""
    notes: tuple[str, ...]
    """What a reader must know: runs left out, protocols that differ."""


def compare(runs: Sequence[RunRecord], baseline: str | None, notes: Sequence[str]) -> Comparison:
    """Compare runs; raises UserError for different panels and an unknown baseline."""
    check_panels(runs)
    groups = group_runs(runs)
    base, doubt = find_baseline(groups, baseline)
    budgets = [run.episodes()[-1] for run in runs if run.episodes()[-1] > 0]
    budget = min(budgets, default=None)
    return Comparison(
        panel=runs[0].panel,
        budget=budget,
        baseline=base.label if base else None,
        results=tuple(_result(group, base, budget) for group in groups),
        notes=(*notes, *protocol_differences(groups), *_length_notes(groups, budgets), *doubt),
    )


def find_baseline(
    groups: Sequence[RunGroup], name: str | None
) -> tuple[RunGroup | None, list[str]]:
    """The group called `name`; without a name grpo, if exactly one group is."""
    wanted = name or DEFAULT_BASELINE
    for found in (
        [g for g in groups if g.label == wanted],
        [g for g in groups if g.method == wanted],
    ):
        if len(found) == 1:
            return found[0], []
        if found:
            labels = ", ".join(repr(g.label) for g in found)
            ask = f"several groups are called {wanted}; choose one with --baseline: {labels}"
            if name:
                raise UserError(ask)
            return None, [f"no baseline: {ask}"]
    if name is None:
        return None, []
    labels = [g.label for g in groups]
    raise UserError(
        f"--baseline: there is no method '{name}'{did_you_mean(name, labels)}; "
        f"expected one of {', '.join(labels)}"
    )


def _length_notes(groups: Sequence[RunGroup], budgets: Sequence[int]) -> list[str]:
    notes: list[str] = []
    for group in groups:
        steps = sorted({run.evaluations[-1].step for run in group.runs})
        if len(steps) > 1:
            notes.append(f"{group.label}: the runs end at different steps: {steps}")
    if len(set(budgets)) > 1:
        shown = ", ".join(map(str, sorted(set(budgets))))
        notes.append(f"budgets differ: {shown} episodes; areas end at {min(budgets)}")
    few = [group.label for group in groups if len(group.runs) < 3]
    if few:
        notes.append(f"fewer than 3 seeds ({', '.join(few)}): seeds vary more than intervals say")
    return notes


def _result(group: RunGroup, base: RunGroup | None, budget: int | None) -> MethodResult:
    runs = group.runs
    start_SN, end_SN = _successes(runs, 0), _successes(runs, -1)
    return MethodResult(
        label=group.label,
        runs=tuple(run.name for run in runs),
        seeds=tuple(run.seed for run in runs),
        start=_interval(start_SN),
        end=_interval(end_SN),
        gain=_interval(end_SN - start_SN),
        interquartile_mean=interquartile_mean(end_SN.mean(axis=1)),
        area=_area(runs, budget),
        last_metrics=_last_metrics(runs),
        response_length=fmean(run.evaluations[-1].mean_length for run in runs),
        seconds=_seconds(runs),
        against=_against(base, end_SN) if base not in (None, group) else None,
        curve=_curve(runs),
    )


def _successes(runs: Sequence[RunRecord], index: int) -> Array:
    """[S, N] mean success of each run at each task."""
    return np.stack([run.evaluations[index].successes_N for run in runs])


def _interval(scores_SN: Array) -> Interval:
    return crossed_interval(scores_SN, reps=REPETITIONS, seed=SEED, level=LEVEL)


def _area(runs: Sequence[RunRecord], budget: int | None) -> Interval | None:
    """The area is linear in the successes, so it is taken task by task and then averaged."""
    if budget is None or any(run.episodes()[-1] == 0 for run in runs):
        return None
    areas = [
        [
            area_under_curve(run.episodes(), curve_E, x_max=budget)
            for curve_E in np.stack([e.successes_N for e in run.evaluations], axis=1)
        ]
        for run in runs
    ]
    return _interval(np.array(areas, dtype=np.float64))


def _last_metrics(runs: Sequence[RunRecord]) -> dict[str, float]:
    found = {key: [run.last(key) for run in runs] for key in LAST_METRICS}
    known = {key: [v for v in values if v is not None] for key, values in found.items()}
    return {key: fmean(values) for key, values in known.items() if values}


def _seconds(runs: Sequence[RunRecord]) -> dict[str, float]:
    columns = {phase: [v for r in runs for v in r.column(f"time/{phase}_s")] for phase in PHASES}
    return {phase: median(values) for phase, values in columns.items() if values}


def _against(base: RunGroup | None, end_SN: Array) -> Against:
    assert base is not None, "asked only with a baseline"
    base_RN = _successes(base.runs, -1)
    return Against(
        difference=crossed_difference(base_RN, end_SN, reps=REPETITIONS, seed=SEED, level=LEVEL),
        probability_of_improvement=probability_of_improvement(end_SN.T, base_RN.T),
    )


def _curve(runs: Sequence[RunRecord]) -> Curve:
    """Runs are joined at every evaluation that is within all of them, linear in between."""
    episodes = [run.episodes() for run in runs]
    end = min(x[-1] for x in episodes)
    grid = sorted({float(x) for xs in episodes for x in xs if x <= end})
    if end == 0:
        # Demonstrations play no episodes: the curve is one point, the success at the end.
        heights_SG = np.array([[run.evaluations[-1].success] for run in runs])
    else:
        heights_SG = np.stack(
            [
                np.interp(grid, xs, [e.success for e in run.evaluations])
                for run, xs in zip(runs, episodes, strict=True)
            ]
        )
    bands = [
        bootstrap_interval([column], "mean", reps=REPETITIONS, seed=SEED, level=LEVEL)
        for column in heights_SG.T
    ]
    return Curve(
        episodes=tuple(grid),
        success=tuple(band.point for band in bands),
        low=tuple(band.low for band in bands),
        high=tuple(band.high for band in bands),
    )
