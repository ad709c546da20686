"""The ledger of a sweep: what was planned and what became of it, as a folder tells it.

`sweep.json` holds the plan as it was given. `ledger.jsonl` holds one event per line, appended and
synced; a cell is what its events say when a later one overwrites the fields of an earlier one. A
last line that a crash cut off is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
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
        wrong = _wrong_in_plan(found)
        if wrong:
            raise DataError(
                f"{path}: {wrong}; it is written by a sweep: put a copy of it back, or move the "
                "directory away and give the command again"
            )
        return found

    def write_plan(self, plan: Mapping[str, Any]) -> None:
        """Replace sweep.json; raises RunError."""
        text = json.dumps(plan, indent=2, sort_keys=True) + "\n"
        replace_file(self.folder / "sweep.json", text.encode())

    def cells(self) -> dict[str, Cell]:
        """All cells by name, in the order in which they were planned; raises DataError.

        Their paths are those in this folder, wherever it was when they were written.
        """
        found: dict[str, Cell] = {}
        for event in self._events():
            name = event["name"]
            found[name] = replace(found.get(name, Cell(name=name)), **event)
        here = self.folder.absolute()
        return {name: _moved(cell, here) for name, cell in found.items()}

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
    """An event that is whole and has what `Cell` expects in every field, else None."""
    try:
        event = json.loads(raw)
    except ValueError:
        return None
    if not isinstance(event, dict) or "name" not in event:
        return None
    return event if all(FITS[key](event[key]) for key in NAMES & event.keys()) else None


def _moved(cell: Cell, here: Path) -> Cell:
    """The cell with its paths under `here`, where the directory of the sweep is now."""
    before = Path(cell.run).parent
    if not cell.run or before == here:
        return cell
    log = Path(cell.log)
    inside = cell.log and log.is_relative_to(before)
    return replace(
        cell,
        run=str(here / cell.name),
        log=str(here / log.relative_to(before)) if inside else cell.log,
    )


def _wrong_in_plan(found: Any) -> str:
    """What is not as a sweep writes it, '' if nothing is."""
    if not isinstance(found, dict):
        return f"got {type(found).__name__}, expected a JSON object"
    for key, fits, expected in PLAN:
        if not fits(found.get(key)):
            shown = json.dumps(found[key])[:60] if key in found else "nothing"
            return f"{key}: got {shown}, expected {expected}"
    return ""


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_text_or_null(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_text_or_texts(value: Any) -> bool:
    return isinstance(value, str) or _are_texts(value)


def _by_text(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(fits, value.values()))


def _is_objective(value: Any) -> bool:
    values = value if isinstance(value, list) else [value]
    return all(each is None or _is_number(each) for each in values)


FITS: Mapping[str, Callable[[Any], bool]] = {
    "name": _is_text,
    "values": _by_text(_is_text),
    "run": _is_text,
    "status": STATUSES.__contains__,
    "attempt": _is_whole,
    "pid": lambda value: value is None or _is_whole(value),
    "job": _is_text_or_null,
    "exit_code": lambda value: value is None or _is_whole(value),
    "error": _is_text_or_null,
    "log": _is_text,
    "objective": _is_objective,
    "duration_s": _is_number,
    "time": _is_number,
}
"""For each field of a cell, what an event may say of it."""
PLAN: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("axes", _by_text(_are_texts), "lists of values by key"),
    ("metric", _is_text_or_texts, "a key or a list of keys"),
    ("objective", _is_text, "text"),
    ("direction", _is_text_or_texts, "text or a list"),
    ("words", _are_texts, "the words of the command"),
    ("folder", _is_text, "the folder of the command"),
    ("root", _is_text, "run.root"),
    ("config_dir", _is_text_or_null, "a folder or null"),
    ("config_name", _is_text, "text"),
    ("identity", lambda value: isinstance(value, dict), "a mapping"),
)
"""Keys of sweep.json that are read, and what each holds."""
