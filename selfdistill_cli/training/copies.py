"""The copies of metrics.jsonl that a run's trackers keep."""

from __future__ import annotations

from typing import Any

from selfdistill_cli.tracking.settings import each_tracker
from selfdistill_cli.tracking.sinks import OpenSink, open_sinks
from selfdistill_cli.training.interrupts import Interrupts
from selfdistill_cli.training.run_directory import RunDirectory
from selfdistill_cli.training.settings import TrainSettings


def open_copies(
    settings: TrainSettings, directory: RunDirectory, display: Any, interrupts: Interrupts
) -> list[OpenSink]:
    """Open a sink for each tracker; the run's id for W&B is kept in run.json from here on."""
    if not each_tracker(settings.tracker):
        return []
    identity = directory.identity()
    directory.update_identity(**identity)
    return open_sinks(
        settings.tracker,
        directory.path,
        directory.path.name,
        identity["wandb_id"],
        directory.described(),
        display.message,
        interrupts.ask,
    )
