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
from selfdistill_cli.tracking.wandb_sink import digest_of
from selfdistill_cli.tracking.wandb_worker import read_sent
from selfdistill_cli.tracking.worker_sink import known

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
    """Send every line of RUN/metrics.jsonl to one copy; return the number of lines.

    W&B's files lie in RUN/wandb_rebuilt/wandb, in place of an earlier rebuild; online, lines that
    this id got by an earlier call are not sent again. Other copies are written anew where they
    are. Raises RunError if a line was lost.
    """
    lines = _lines(run)
    patient = dataclasses.replace(
        settings,
        log_timeout_s=PATIENCE_S,
        finish_timeout_s=max(settings.finish_timeout_s, PATIENCE_S),
    )
    place: dict[str, Path] = {}
    if isinstance(settings, WandbSettings):
        online = settings.mode == "online"
        place["out"] = _online_folder(run, run_id) if online else run / FOLDER
        if not online:
            shutil.rmtree(run / FOLDER / "wandb", ignore_errors=True)
    sink = patient.build(run, run.name, run_id, config, announce, **place)
    for line in lines:
        sink.log(line["step"], _metrics(line))
    sink.finish(str(identity.get("status", "finished")))
    health = sink.health()
    if int(health["dropped"]) + int(health["errors"]):
        raise RunError(
            f"{sink.name} did not take everything: {health}; see {sink.folder / 'worker.log'} and "
            "give the same command again"
        )
    return len(lines)


def fits(run: Path, run_id: str) -> bool:
    """Whether the run's lines are those that an id got online by earlier calls, and maybe more.

    W&B takes nothing back: after going back to a checkpoint and on with other numbers, only another
    id can hold every step once.
    """
    lines = {line["step"]: digest_of(known(_metrics(line))) for line in _lines(run)}
    sent = read_sent(_online_folder(run, run_id) / "wandb" / "sent.jsonl")
    return all(lines.get(step) == digest for step, (_, digest) in sent.items())


def _lines(run: Path) -> list[dict[str, Any]]:
    lines = read(run / "metrics.jsonl")
    if not lines:
        raise ConfigError(f"{run / 'metrics.jsonl'} has no line yet: there is nothing to send")
    return lines


def _metrics(line: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key != "step"}


def _online_folder(run: Path, run_id: str) -> Path:
    return run / FOLDER / "online" / run_id
