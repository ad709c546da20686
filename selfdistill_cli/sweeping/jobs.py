"""What a cell is started with: its resolved configuration as a file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from selfdistill_cli.analysis.ledger import Cell
from selfdistill_cli.core.disk import replace_file
from selfdistill_cli.sweeping.folder import SWEEPS, SweepFolder

LONGEST_TAG = 64
"""Characters that W&B takes."""


def prepare(folder: SweepFolder, cell: Cell, container: dict[str, Any]) -> Path:
    """Write jobs/<cell>.json; `container` is the cell's own. Raises RunError."""
    container["run"]["root"] = folder.root
    container["run"]["name"] = f"{SWEEPS}/{folder.name}/{cell.name}"
    container["resume"] |= {"mode": "auto", "step": None}
    mark(container, cell, folder.name)
    job = {
        "argv": ["selfdistill", "train", *_words(folder, cell)],
        "config_dir": folder.command.config_dir,
        "container": container,
    }
    path = folder.path / "jobs" / f"{cell.name}.json"
    replace_file(path, json.dumps(job, indent=1).encode())
    return path


def mark(container: Mapping[str, Any], cell: Cell, sweep: str) -> None:
    """Let the trackers know what belongs together: one group for the sweep, a tag for each axis."""
    tracker = container["tracker"]
    for copy in tracker.get("sinks", {"": tracker}).values():
        for name, value in (("group", sweep), ("job_type", "sweep")):
            if name in copy and copy[name] is None:
                copy[name] = value
        if "tags" in copy:
            own = [f"{key}={text}"[:LONGEST_TAG] for key, text in cell.values.items()]
            copy["tags"] = [*copy["tags"], *own]


def _words(folder: SweepFolder, cell: Cell) -> list[str]:
    """The command line that trains this cell alone."""
    words = [word for word in folder.command.words if word.partition("=")[0] not in cell.values]
    own = [f"run.root={os.path.normpath(folder.path)}", f"run.name={cell.name}"]
    return [*words, *(f"{key}={text}" for key, text in cell.values.items()), *own]
