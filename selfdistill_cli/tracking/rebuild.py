"""One gap-free W&B run from metrics.jsonl, however many attempts and segments there were."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from selfdistill_cli.core.errors import ConfigError, RunError
from selfdistill_cli.tracking.metrics_file import read
from selfdistill_cli.tracking.settings import WandbSettings
from selfdistill_cli.tracking.wandb_sink import WandbSink

FOLDER = "wandb_rebuilt"
PATIENCE_S = 30.0
"""Seconds that a line may wait: here nothing trains meanwhile, and no line may be lost."""


def rebuild(
    run: Path,
    settings: WandbSettings,
    mode: Literal["offline", "online"],
    identity: Mapping[str, Any],
    run_id: str,
    config: Mapping[str, Any],
    announce: Callable[[str], None],
) -> int:
    """Send every line of RUN/metrics.jsonl to a new W&B run; return the number of lines.

    Offline the files lie in RUN/wandb_rebuilt/wandb, in place of an earlier rebuild. Raises
    RunError if a line was lost.
    """
    lines = read(run / "metrics.jsonl")
    if not lines:
        raise ConfigError(f"{run / 'metrics.jsonl'} has no line yet: there is nothing to send")
    folder = run / FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    settings = dataclasses.replace(
        settings,
        mode=mode,
        log_timeout_s=PATIENCE_S,
        finish_timeout_s=max(settings.finish_timeout_s, PATIENCE_S),
    )
    sink = WandbSink(settings, folder, run.name, run_id, config, announce)
    for line in lines:
        sink.log(line["step"], {key: value for key, value in line.items() if key != "step"})
    sink.finish(str(identity.get("status", "finished")))
    health = sink.health()
    lost = int(health["dropped"]) + int(health["errors"])
    if lost:
        raise RunError(
            f"W&B did not take everything: {health}; see {folder / 'wandb' / 'worker.log'} and "
            "give the same command again"
        )
    return len(lines)
