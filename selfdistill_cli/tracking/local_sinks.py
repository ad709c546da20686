"""Copies of metrics.jsonl in the formats of programs that show them on this machine.

Each attempt writes its copy anew from metrics.jsonl: no step stands in it twice, and what an
earlier attempt dropped is there again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from selfdistill_cli.tracking.settings import TensorboardSettings, TrackioSettings
from selfdistill_cli.tracking.worker_sink import WorkerSink


class TensorboardSink(WorkerSink):
    """Event files in `run_dir`/tensorboard."""

    def __init__(
        self,
        settings: TensorboardSettings,
        run_dir: Path,
        run_name: str,
        run_id: str,
        config: Mapping[str, Any],
        announce: Callable[[str], None] | None = None,
    ):
        folder = Path(run_dir).absolute() / "tensorboard"
        order = {"run_dir": str(folder.parent), "folder": str(folder), "config": config}
        super().__init__(settings, "TensorBoard", folder, order, announce, {})


class TrackioSink(WorkerSink):
    """A run of Trackio's local database; it is never sent anywhere."""

    def __init__(
        self,
        settings: TrackioSettings,
        run_dir: Path,
        run_name: str,
        run_id: str,
        config: Mapping[str, Any],
        announce: Callable[[str], None] | None = None,
    ):
        run_dir = Path(run_dir).absolute()
        order = {
            "run_dir": str(run_dir),
            "run_name": run_name,
            "project": settings.project,
            "group": settings.group,
            "config": config,
        }
        database = Path(settings.folder or run_dir.parent / "trackio").absolute()
        # Where these are set, Trackio would send the run to a server.
        elsewhere = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "TRACKIO_BUCKET_ID")
        environment = {"TRACKIO_DIR": str(database), **dict.fromkeys(elsewhere)}
        super().__init__(settings, "Trackio", run_dir / "trackio", order, announce, environment)
