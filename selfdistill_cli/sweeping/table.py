"""The words and numbers of a sweep: one row for each cell, counts, and what went wrong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from selfdistill_cli.analysis.ledger import STATUSES, Cell
from selfdistill_cli.sweeping.readings import Follower, How
from selfdistill_cli.tracking.readout import duration, number

HEADER = ("cell", "status", "step", "objective", "time", "attempt")
WIDEST = 60
NAMES_SHOWN = 5
WRONG = ("failed", "nan", "invalid")


def row(
    cell: Cell, progress: str, objective: float | list[float] | None, seconds: float
) -> list[str]:
    """One cell as words."""
    values = objective if isinstance(objective, list) else [objective]
    return [
        shortened(cell.name),
        cell.status,
        progress,
        " ".join(number(value, ".4f") for value in values),
        duration(seconds) if seconds else "-",
        str(cell.attempt) if cell.attempt else "-",
    ]


def running_row(
    cell: Cell, follower: Follower, how: How, direction: str | Sequence[str], seconds: float
) -> list[str]:
    """A cell that runs: how far it is, and its objective so far."""
    objective = follower.objective(how, direction)
    return row(cell, f"{follower.step}/{follower.total_steps}", objective, seconds)


def shortened(name: str) -> str:
    """A name that leaves room for the other columns."""
    return name if len(name) <= WIDEST else f"{name[: WIDEST - 9]}…{name[-8:]}"


def lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """A table as text, its header first; all columns but the first two are set to the right."""
    every = [HEADER, *rows]
    widths = [max(len(r[i]) for r in every) for i in range(len(HEADER))]
    return [
        "  ".join(
            word.ljust(width) if i < 2 else word.rjust(width)
            for i, (word, width) in enumerate(zip(r, widths, strict=True))
        ).rstrip()
        for r in every
    ]


def counts(cells: Iterable[Cell]) -> str:
    """`12 cells: 8 done, 3 failed, 1 running`."""
    found = Counter(cell.status for cell in cells)
    parts = [f"{found[status]} {status}" for status in STATUSES if found[status]]
    return f"{sum(found.values())} cells: {', '.join(parts) or 'none'}"


def failures(cells: Iterable[Cell]) -> list[str]:
    """Every cell that went wrong with its own error and log; equal reasons of many are one."""
    found: list[str] = []
    invalid: dict[str, list[str]] = {}
    for cell in cells:
        if cell.status == "invalid":
            invalid.setdefault(cell.error or "", []).append(cell.name)
        elif cell.status in WRONG:
            found += _reason(f"{cell.name}: {cell.status}", cell.error)
            found.append(f"    log: {cell.log}")
    for error, names in invalid.items():
        more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
        found += _reason(f"{', '.join(names[:NAMES_SHOWN])}{more}: invalid", error)
    return found


def _reason(what: str, error: str | None) -> list[str]:
    said = (error or "").strip().splitlines() or ["no message"]
    return [f"{what}: {said[0]}", *(f"    {line}" for line in said[1:])]


def total_steps(folder: Path, name: str) -> int:
    """run.max_steps of a cell that was prepared, 0 of another one."""
    try:
        job = json.loads((folder / "jobs" / f"{name}.json").read_bytes())
        return int(job["container"]["run"]["max_steps"])
    except (OSError, ValueError, KeyError):
        return 0


def axes_line(axes: Mapping[str, Sequence[str]], shown: int = 8) -> list[str]:
    """One line for each axis: its values, the first of many."""
    found: list[str] = []
    for key, values in axes.items():
        more = f" and {len(values) - shown} more" if len(values) > shown else ""
        found.append(f"  {key}: {', '.join(values[:shown])}{more}")
    return found


def intervals_line(intervals: Mapping[str, Sequence[float | str]]) -> list[str]:
    """One line for each key with an interval: `optim.lr: 1e-06 to 0.001 (log)`."""
    found: list[str] = []
    for key, (low, high, *tags) in intervals.items():
        tagged = f" ({', '.join(map(str, tags))})" if tags else ""
        found.append(f"  {key}: {low} to {high}{tagged}")
    return found
