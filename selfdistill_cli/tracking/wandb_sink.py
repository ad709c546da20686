"""A copy of metrics.jsonl in Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from selfdistill_cli.tracking.settings import WandbSettings
from selfdistill_cli.tracking.worker_sink import WorkerSink

OF_A_SWEEP = ("WANDB_SWEEP_ID", "WANDB_RUN_ID", "WANDB_SWEEP_PARAM_PATH")
"""What W&B's agent sets for a trial."""


class WandbSink(WorkerSink):
    """W&B's copy, in `out`/wandb (`run_dir` without it).

    Raises UserError at construction if W&B refuses the run (mode=online without a login).
    """

    def __init__(
        self,
        settings: WandbSettings,
        run_dir: Path,
        run_name: str,
        run_id: str,
        config: Mapping[str, Any],
        announce: Callable[[str], None] | None = None,
        out: Path | None = None,
    ):
        folder = Path(out or run_dir).absolute()
        order = {
            "mode": settings.mode,
            "run_dir": str(Path(run_dir).absolute()),
            "folder": str(folder),
            "run_name": settings.name or run_name,
            "run_id": run_id,
            "project": settings.project,
            "entity": settings.entity,
            "group": settings.group or sweep_of(run_id),
            "job_type": settings.job_type,
            "notes": settings.notes,
            "tags": settings.tags,
            "config": config,
            "init_timeout_s": settings.init_timeout_s,
        }
        environment: dict[str, str | None] = {
            "WANDB_CACHE_DIR": str(folder / "wandb" / "cache"),
            "WANDB_SERVICE": None,
        }
        if sweep_of(run_id) is None:
            # W&B would take the trial's id for this run, whatever it is told.
            environment |= dict.fromkeys(OF_A_SWEEP)
        super().__init__(
            settings, "W&B", folder / "wandb", order, announce, environment,
            admission_s=settings.init_timeout_s if settings.mode == "online" else 0.0,
            asked="tracker.mode=online",
            remedy="Run `wandb login` or set WANDB_API_KEY; or keep tracker.mode=offline and use "
            "`wandb sync` later",
            enabled=settings.mode != "disabled",
        )  # fmt: skip


def sweep_of(run_id: str) -> str | None:
    """The id of W&B's sweep, if this process is its trial `run_id`."""
    sweep, trial = os.environ.get("WANDB_SWEEP_ID"), os.environ.get("WANDB_RUN_ID")
    return sweep if sweep and trial == run_id else None
