"""metrics.jsonl: one JSON object per line and step; the truth about a run.

Keys are sorted after `step`, floats are the shortest text that reads back as the same float,
and a float that is not finite is `null`. Two equal runs on one machine have equal lines,
except for the prefixes in `CLOCK_AND_MACHINE`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from selfdistill_cli.core.disk import append_line, replace_file, writing
from selfdistill_cli.core.errors import DataError
from selfdistill_cli.tracking.files import compact, plain

CLOCK_AND_MACHINE = ("time/", "memory/")
"""Prefixes of everything that depends on the clock or on the machine."""


class MetricsFile:
    """Appends lines to metrics.jsonl; a line is on the disk, whole, when `append` returns.

    Without the wait for the disk a checkpoint could outlive its lines.
    """

    def __init__(self, path: Path):
        self.path = Path(path)

    def append(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Write one line, whole or not at all; raises RunError if it cannot be written."""
        assert "step" not in metrics, "`step` is given apart"
        line = compact({"step": step, **{key: plain(metrics[key]) for key in sorted(metrics)}})
        append_line(self.path, line)

    def truncate_after(self, step: int) -> int:
        """Drop lines of later steps and a torn last line; return how many lines were dropped.

        The old file is kept beside the new one as `metrics.jsonl.bak-<n>` if a line was dropped.
        """
        if not self.path.exists():
            return 0
        old = self.path.read_bytes()
        lines = list(_lines(self.path, old))
        kept = [raw for raw, line in lines if line is not None and line["step"] <= step]
        new = b"".join(raw + b"\n" for raw in kept)
        num_dropped = len(lines) - len(kept)
        if num_dropped:
            backup = self._free_backup()
            with writing(backup):
                shutil.copyfile(self.path, backup)
        if new != old:
            replace_file(self.path, new)
        return num_dropped

    def _free_backup(self) -> Path:
        number = 1
        while (path := self.path.with_name(f"{self.path.name}.bak-{number}")).exists():
            number += 1
        return path


def read(path: Path) -> list[dict[str, Any]]:
    """Return all lines in order. A torn last line is left out; a broken one is a DataError."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected the metrics.jsonl of a run")
    return [line for _, line in _lines(path, path.read_bytes()) if line is not None]


def deterministic_view(line: Mapping[str, Any]) -> dict[str, Any]:
    """The line without what depends on the clock or the machine."""
    return {key: line[key] for key in line if not key.startswith(CLOCK_AND_MACHINE)}


def _lines(path: Path, data: bytes) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """Pairs of raw line and parsed line; None for a last line that was cut off."""
    rows = data.split(b"\n")
    last = len(rows) - 1
    for number, raw in enumerate(rows):
        if not raw.strip():
            continue
        line = _parsed(raw)
        if line is None and number != last:
            raise DataError(
                f"{path} line {number + 1}: found {raw[:60]!r}, expected a JSON object with an "
                f"integer `step`. Delete that line, or take {path.name}.bak-<n> if there is one"
            )
        yield raw, line


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(raw)
    except ValueError:
        return None
    return line if isinstance(line, dict) and isinstance(line.get("step"), int) else None
