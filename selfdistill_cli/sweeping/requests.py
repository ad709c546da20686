"""What another shell asks of a sweep that runs: one small file for each cell to cancel."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from selfdistill_cli.core.disk import writing

ALL = ".all"
"""Instead of a name: every cell that is left, and those that a search would still propose."""


def ask_to_cancel(folder: Path, names: Iterable[str]) -> None:
    """Leave a request for each cell; the process that runs the sweep takes it. Raises RunError."""
    for name in names:
        path = _requests(folder) / name
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()


def taken(folder: Path) -> list[str]:
    """Names of cells to cancel; each request is given once."""
    if not _requests(folder).is_dir():
        return []
    found = sorted(path.name for path in _requests(folder).iterdir())
    for name in found:
        (_requests(folder) / name).unlink(missing_ok=True)
    return found


def _requests(folder: Path) -> Path:
    return folder / "jobs" / "cancel"
