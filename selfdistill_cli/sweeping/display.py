"""What a person sees while a sweep runs: a live table on a terminal, one line per change elsewhere.

A display never ends a sweep: when nobody can be written to any more, it falls silent.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from typing import Any, TextIO

from selfdistill_cli.analysis.ledger import ENDED, Cell
from selfdistill_cli.sweeping.readings import Follower
from selfdistill_cli.sweeping.settings import SweepSettings
from selfdistill_cli.sweeping.table import HEADER, counts, row, running_row

SUMMARY_EVERY_S = 60.0
REFRESH_EVERY_S = 0.5
PENDING_SHOWN = 3


def make_display(stream: TextIO, settings: SweepSettings) -> PlainDisplay:
    """A live table if `stream` is a capable terminal, else lines."""
    live = stream.isatty() and os.environ.get("TERM") != "dumb"
    return LiveDisplay(stream, settings) if live else PlainDisplay(stream, settings)


class PlainDisplay:
    """A line for each change and a summary every minute."""

    def __init__(self, stream: TextIO, settings: SweepSettings):
        self.stream = stream
        self.settings = settings
        self.started: dict[str, float] = {}
        self._next = time.monotonic() + SUMMARY_EVERY_S

    def message(self, text: str) -> None:
        """Write and flush, so that a log file can be followed."""
        try:
            self.stream.write(f"{text}\n")
            self.stream.flush()
        except (OSError, ValueError):  # the reader is gone: the sweep goes on
            pass

    def changed(self, cell: Cell) -> None:
        """`gear-seed_1 done: objective 0.412, 1:52`, or `... failed: what it said`."""
        if cell.status == "running":
            self.started[cell.name] = time.monotonic()
        self.message(described(cell))

    def progress(self, cells: Mapping[str, Cell], running: Mapping[str, Follower]) -> None:
        """Every minute: counts, and how far the running cells are."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + SUMMARY_EVERY_S
        steps = [f"{name} {f.step}/{f.total_steps}" for name, f in running.items()]
        self.message("  ".join([counts(cells.values()), *steps]))

    def close(self) -> None:
        """Nothing to give back."""

    def seconds(self, cell: Cell) -> float:
        """How long all attempts at a running cell took so far."""
        start = self.started.get(cell.name)
        return cell.duration_s + (0.0 if start is None else time.monotonic() - start)


def described(cell: Cell) -> str:
    """One line about a cell."""
    words = row(cell, "", cell.objective, cell.duration_s)
    if cell.status == "running":
        return f"{cell.name} started" + (f" (attempt {cell.attempt})" if cell.attempt > 1 else "")
    if cell.error:
        again = " and starts again" if cell.status == "pending" else ""
        return f"{cell.name} {cell.status}{again}: {cell.error.strip().splitlines()[0]}"
    about = [f"objective {words[3]}"] if cell.objective is not None else []
    about += [words[4]] if cell.duration_s else []
    return f"{cell.name} {cell.status}" + (f": {', '.join(about)}" if about else "")


class LiveDisplay(PlainDisplay):
    """A table that changes in place: what runs, what comes next, what ended last."""

    def __init__(self, stream: TextIO, settings: SweepSettings):
        from rich.console import Console
        from rich.live import Live

        super().__init__(stream, settings)
        self.console = Console(file=stream, highlight=False, emoji=False)
        self._live = Live(console=self.console, auto_refresh=False, transient=True)
        self._live.start()
        self.console.show_cursor(True)
        self._refresh = 0.0

    def message(self, text: str) -> None:
        """Print above the table."""
        with contextlib.suppress(OSError, ValueError):
            self.console.print(text, markup=False, soft_wrap=True)

    def progress(self, cells: Mapping[str, Cell], running: Mapping[str, Follower]) -> None:
        """Draw, at most twice a second."""
        if time.monotonic() < self._refresh:
            return
        self._refresh = time.monotonic() + REFRESH_EVERY_S
        with contextlib.suppress(OSError, ValueError):
            self._live.update(self._table(cells, running), refresh=True)

    def _table(self, cells: Mapping[str, Cell], running: Mapping[str, Follower]) -> Any:
        from rich.table import Table

        table = Table(*HEADER, caption=counts(cells.values()), caption_justify="left")
        how, direction = self.settings.objective, self.settings.direction
        rows = [
            running_row(cells[name], follower, how, direction, self.seconds(cells[name]))
            for name, follower in running.items()
        ]
        waiting = [cell for cell in cells.values() if cell.status in ("pending", "preempted")]
        ended = sorted((c for c in cells.values() if c.status in ENDED), key=lambda c: -c.time)
        room = max(0, self.console.height - len(rows) - 8 - PENDING_SHOWN)
        rows += [row(c, "-", c.objective, c.duration_s) for c in waiting[:PENDING_SHOWN]]
        rows += [row(c, "-", c.objective, c.duration_s) for c in ended[:room]]
        for words in rows:
            table.add_row(*words)
        return table

    def close(self) -> None:
        """Take the table away; what stays is printed after it."""
        self._live.stop()
