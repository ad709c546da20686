"""Is there room for the checkpoints? Asked before the first step and before each of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from selfdistill_cli.core.errors import RunError

if TYPE_CHECKING:
    from selfdistill_cli.training.run import Run

MOMENTS_BYTES = 8
"""AdamW keeps two float32 numbers for every trained one."""
MARGIN = 1.05
"""Tokenizer, manifest and the states of small parts, as a share of the whole."""
GIB = 2**30


def checkpoint_bytes(run: Run) -> int:
    """Estimated size of one checkpoint: model folders, optimizer, slow copy."""
    adapters_only = hasattr(run.policy.backbone, "peft_config")
    parameters = [p for p in run.policy.parameters() if p.requires_grad or not adapters_only]
    folder = sum(p.numel() * p.element_size() for p in parameters)
    trained = sum(p.numel() for p in parameters if p.requires_grad)
    copy, folders = 0, 1
    if run.slow_copy is not None:
        copy = sum(x.numel() * x.element_size() for x in run.slow_copy.slow.values())
        folders += int(run.slow_copy.is_policy)
    return int(MARGIN * (folders * folder + trained * MOMENTS_BYTES + copy))


def check_room_for_run(run: Run) -> None:
    """Raise RunError unless the kept checkpoints and one being written fit beside what is there.

    The best one is kept besides the newest.
    """
    settings = run.settings.checkpoint
    written = -(-run.settings.run.max_steps // settings.every)
    count = min(settings.keep + 2, written)
    present = len(run.checkpoints.steps())
    needed = checkpoint_bytes(run) * max(1, count - present)
    _expect(run.directory, needed, f"{count} checkpoints of about {_gib(checkpoint_bytes(run))}")


def check_room(folder: Path, needed: int) -> None:
    """Raise RunError unless a checkpoint of `needed` bytes fits into the folder's file system."""
    _expect(folder, needed, "the next checkpoint")


def folder_bytes(folder: Path) -> int:
    """Bytes of a folder's files."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def _expect(folder: Path, needed: int, what: str) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise RunError(
            f"no room on the disk of {folder}: {_gib(free)} are free, and {what} need "
            f"{_gib(needed)}. What was written before is intact; free some space (`selfdistill "
            "checkpoints RUN prune`), keep fewer (checkpoint.keep), or choose another run.root, "
            "and give the same command again."
        )


def _gib(count: int) -> str:
    return f"{count / GIB:.2f} GiB" if count >= GIB / 100 else f"{count / 2**20:.1f} MiB"
