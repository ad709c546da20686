"""A gap-free copy from metrics.jsonl, however many attempts and segments there were."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from selfdistill_cli.core.errors import ConfigError, RunError
from selfdistill_cli.tracking.metrics_file import read
from selfdistill_cli.tracking.settings import CopySettings, WandbSettings

FOLDER = "wandb_rebuilt"
PATIENCE_S = 30.0
"""Seconds that a line may wait: here nothing trains meanwhile, and no line may be lost."""


def rebuild(
    run: Path,
    settings: CopySettings,
    identity: Mapping[str, Any],
    run_id: str,
    config: Mapping[str, Any],
    announce: Callable[[str], None],
) -> int:
    """Send every line of RUN/metrics.jsonl to a new copy; return the number of lines.

    W&B's files lie in RUN/wandb_rebuilt/wandb, in place of an earlier rebuild; other copies are
    written anew where they are. Raises RunError if a line was lost.
    """
    lines = read(run / "metrics.jsonl")
    if not lines:
        raise ConfigError(f"{run / 'metrics.jsonl'} has no line yet: there is nothing to send")
    patient = dataclasses.replace(
        settings,
        log_timeout_s=PATIENCE_S,
        finish_timeout_s=max(settings.finish_timeout_s, PATIENCE_S),
    )
    place: dict[str, Path] = {}
    if isinstance(settings, WandbSettings):
        place["out"] = run / FOLDER
        shutil.rmtree(run / FOLDER, ignore_errors=True)
    sink = patient.build(run, run.name, run_id, config, announce, **place)
    for line in lines:
        sink.log(line["step"], {key: value for key, value in line.items() if key != "step"})
    sink.finish(str(identity.get("status", "finished")))
    health = sink.health()
    if int(health["dropped"]) + int(health["errors"]):
        raise RunError(
            f"{sink.name} did not take everything: {health}; see {sink.folder / 'worker.log'} and "
            "give the same command again"
        )
    return len(lines)
