"""Seconds of a step, scaled from what a finished run measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.tracking.metrics_file import read
from selfdistill_cli.training.planning.shape import read_shape
from selfdistill_cli.training.settings import TrainSettings

PHASES = ("act", "judge", "learn")


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Seconds of one step without evaluation."""

    seconds: float
    """All phases."""
    phases: dict[str, float]
    """By phase."""
    measured: float
    """What the calibration took for its own step."""
    tokens_per_s: float
    """Sampled tokens per second of acting, as the calibration measured it."""
    calibration: str
    """The run."""


def step_time(
    directory: Path, before: TrainSettings, settings: TrainSettings, ranks: int
) -> StepTime:
    """Scale the phases of a finished run, whose settings are `before`, to this run's work.

    Raises ConfigError if it has no step.
    """
    lines = [line for line in read(directory / "metrics.jsonl") if "time/act_s" in line]
    if not lines:
        raise ConfigError(
            f"plan.calibration: {directory} has no finished step; expected a run with at least one "
            "step in its metrics.jsonl"
        )
    laps = {phase: _median(lines, f"time/{phase}_s") for phase in PHASES}
    launcher: Any = before.launcher
    own_ranks = getattr(launcher, "nodes", 1) * getattr(launcher, "num_processes", 1)
    scale = work(settings) / ranks / (work(before) / own_ranks)
    phases = {phase: seconds * scale for phase, seconds in laps.items()}
    return StepTime(
        seconds=sum(phases.values()),
        phases=phases,
        measured=sum(laps.values()),
        tokens_per_s=_median(lines, "time/tokens_per_s"),
        calibration=str(directory),
    )


def work(settings: TrainSettings) -> float:
    """Parameters x tokens of a step at most: forward and backward passes cost 2 and 4 operations
    for each (arXiv 2001.08361, section 2.1). Communication, batching and the kind of machine are
    taken as the calibration's."""
    rollout: Any = settings.rollout
    episodes = settings.batch.tasks_per_step * settings.method.group_size  # pyright: ignore
    tokens = episodes * rollout.max_turns * rollout.max_new_tokens
    return float(read_shape(settings.policy).parameters * tokens)


def _median(lines: Sequence[Mapping[str, Any]], key: str) -> float:
    """Of the second half of the run: the first steps warm up."""
    values = [float(line[key]) for line in lines if key in line]
    return median(values[len(values) // 2 :]) if values else 0.0
