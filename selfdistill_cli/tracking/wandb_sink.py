"""A copy of metrics.jsonl in Weights & Biases."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from selfdistill_cli.tracking.files import compact
from selfdistill_cli.tracking.metrics_file import deterministic_view
from selfdistill_cli.tracking.settings import WandbSettings
from selfdistill_cli.tracking.wandb_trial import OF_A_TRIAL, current_trial
from selfdistill_cli.tracking.worker_sink import WorkerSink


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
        trial = current_trial()
        is_trial = trial is not None and trial.run_id == run_id
        order = {
            "mode": settings.mode,
            "run_dir": str(Path(run_dir).absolute()),
            "folder": str(folder),
            "run_name": settings.name or run_name,
            "run_id": run_id,
            "project": settings.project,
            "entity": settings.entity,
            "group": settings.group or (trial.sweep if trial and is_trial else None),
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
        if not is_trial:
            # W&B would take the trial's id for this run, whatever it is told.
            environment |= dict.fromkeys(OF_A_TRIAL)
        super().__init__(
            settings, "W&B", folder / "wandb", order, announce, environment,
            admission_s=settings.init_timeout_s if settings.mode == "online" else 0.0,
            asked="tracker.mode=online",
            remedy="Run `wandb login` or set WANDB_API_KEY; or stay offline and use "
            "`wandb sync` later",
            enabled=settings.mode != "disabled",
        )  # fmt: skip

    def order(self, step: int, metrics: dict[str, Any]) -> dict[str, Any]:
        """A line with its digest, by which a step that is done again is known."""
        return {**super().order(step, metrics), "digest": digest_of(metrics)}


def digest_of(metrics: Mapping[str, Any]) -> str:
    """The same for lines that differ only in what depends on the clock or the machine."""
    text = compact(dict(sorted(deterministic_view(metrics).items())))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
