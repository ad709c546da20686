"""The ledger of a sweep: what was planned and what became of it, as a folder tells it.

`sweep.json` holds the plan as it was given. `ledger.jsonl` holds one event per line, appended and
synced; a cell is what its events say when a later one overwrites the fields of an earlier one. A
last line that a crash cut off is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from selfdistill_cli.core.disk import append_line, replace_file
from selfdistill_cli.core.errors import DataError

Status = Literal[
    "pending", "running", "done", "failed", "nan", "preempted", "invalid", "pruned", "cancelled"
]
STATUSES: tuple[Status, ...] = get_args(Status)
ENDED: tuple[Status, ...] = ("done", "failed", "nan", "invalid", "pruned", "cancelled")
"""Statuses with which nothing is left to do unless somebody asks for it."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run of a sweep: the values of its axes and what became of it."""

    name: str
    """Name of the run, unique in the sweep."""
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    """What stands for each axis on the command line, by key: {"method": "gear", "seed": "1"}."""
    run: str = ""
    """The run directory."""
    status: Status = "pending"
    """What became of it so far."""
    attempt: int = 0
    """How often it was started."""
    pid: int | None = None
    """Process of the attempt that runs, or ran last."""
    job: str | None = None
    """Slurm's job id, where Slurm runs it."""
    exit_code: int | None = None
    """Of the last attempt; negative: ended by that signal."""
    error: str | None = None
    """What went wrong, as the run said it."""
    log: str = ""
    """File with all that the cell's processes said."""
    objective: float | list[float] | None = None
    """Value of `sweep.metric`, or one for each of several; None if there is none."""
    duration_s: float = 0.0
    """Seconds that all attempts together ran."""
    time: float = 0.0
    """Wall-clock time of the last event, seconds since 1970: shown, never decided upon."""


NAMES = frozenset(entry.name for entry in fields(Cell))


class Ledger:
    """The ledger in the directory of a sweep. One process writes, any may read."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.path = folder / "ledger.jsonl"

    def plan(self) -> dict[str, Any]:
        """What sweep.json holds; raises DataError."""
        path = self.folder / "sweep.json"
        try:
            found = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise DataError(
                f"{path} cannot be read: {error}; expected the directory of a sweep"
            ) from error
        if not isinstance(found, dict):
            raise DataError(f"{path}: expected a JSON object; it is written by a sweep")
        return found

    def write_plan(self, plan: Mapping[str, Any]) -> None:
        """Replace sweep.json; raises RunError."""
        text = json.dumps(plan, indent=2, sort_keys=True) + "\n"
        replace_file(self.folder / "sweep.json", text.encode())

    def cells(self) -> dict[str, Cell]:
        """All cells by name, in the order in which they were planned; raises DataError."""
        found: dict[str, Cell] = {}
        for event in self._events():
            name = event["name"]
            found[name] = replace(found.get(name, Cell(name=name)), **event)
        return found

    def append(self, name: str, **changed: Any) -> None:
        """Write what changed about a cell; it is on the disk on return. Raises RunError."""
        unknown = set(changed) - NAMES
        assert not unknown, f"no fields of a cell: {unknown}"
        self._mend()
        append_line(self.path, json.dumps({"name": name, **changed}))

    def extend(self, cells: Iterable[Cell]) -> None:
        """Write new cells, all of them or none; raises RunError."""
        lines = [json.dumps(asdict(cell)) for cell in cells]
        if lines:
            self._mend()
            append_line(self.path, "\n".join(lines))

    def _mend(self) -> None:
        """End a line that a crash cut off, so that the next one stands alone."""
        if self.path.is_file() and self.path.stat().st_size:
            with self.path.open("rb+") as file:
                file.seek(-1, 2)
                if file.read(1) != b"\n":
                    file.write(b"\n")

    def _events(self) -> list[dict[str, Any]]:
        """Every event that is whole. A torn line stands last, or was ended by the next start."""
        if not self.path.is_file():
            return []
        events: list[dict[str, Any]] = []
        for raw in self.path.read_bytes().split(b"\n"):
            event = _parsed(raw)
            if event is not None:
                events.append({key: value for key, value in event.items() if key in NAMES})
        return events


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(raw)
    except ValueError:
        return None
    named = isinstance(event, dict) and isinstance(event.get("name"), str)
    return event if named and event.get("status", "pending") in STATUSES else None
