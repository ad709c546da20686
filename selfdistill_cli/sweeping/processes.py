"""Starting cells on this machine, each with its keeper, and ending what an earlier sweep left."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from selfdistill_cli.analysis.ledger import Cell
from selfdistill_cli.core.disk import writing
from selfdistill_cli.core.errors import RunError
from selfdistill_cli.core.locks import holder_of
from selfdistill_cli.sweeping.keeper import END_S, LEFTOVERS_S, started_at
from selfdistill_cli.sweeping.settings import SweepSettings

POLL_S = 0.1
SLACK_S = 2 * (LEFTOVERS_S + END_S)
"""What a keeper may take longer than the grace."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How an attempt at a cell ended."""

    code: int
    """Exit code; negative: by that signal."""
    asked: bool
    """It had been asked to stop."""
    seconds: float
    """How long it ran."""
    said: str
    """The end of its standard error."""


class Running(Protocol):
    """A cell that was started."""

    def pid(self) -> int | None:
        """Number of its process, None until it is known."""
        ...

    def poll(self) -> Ended | None:
        """How it ended, None while it runs."""
        ...

    def ask(self) -> None:
        """Let it write a checkpoint and stop, within the grace."""
        ...

    def kill(self) -> None:
        """End it at once, with all that it started."""
        ...


class Starter(Protocol):
    """Starts cells that were prepared as job files: processes here, or jobs of a cluster."""

    def start(self, cell: Cell, environment: Mapping[str, str]) -> Running:
        """Start `jobs/<cell>.json`; `cell.attempt` is that of this start. Raises RunError."""
        ...

    def settle(self, cell: Cell, hurry: Callable[[], bool]) -> Ended | None:
        """Wait, within bounds and while `hurry` is false, until nothing of an earlier start runs.

        Returns how that attempt ended, None if nobody recorded it.
        """
        ...


class LocalStarter:
    """Processes on this machine, each `python -m MODULE JOB`."""

    def __init__(
        self, folder: Path, settings: SweepSettings, module: str = "selfdistill_cli.cli.cell"
    ):
        self.folder = folder
        self.settings = settings
        self.module = module

    def start(self, cell: Cell, environment: Mapping[str, str]) -> Running:
        """Start a keeper, which starts the cell."""
        paths = Paths(self.folder, cell.name)
        lock = paths.lock.open("a+")
        try:
            _hold(lock, cell.name)
            order = self._order(cell, paths, lock.fileno())
            with writing(paths.order):
                paths.who.unlink(missing_ok=True)
                paths.order.write_text(json.dumps(order))
            keeper = subprocess.Popen(
                [sys.executable, "-m", "selfdistill_cli.sweeping.keeper", str(paths.order)],
                env={**os.environ, "PYTHONPATH": _import_path(), **environment},
                stdin=subprocess.PIPE,  # ends with us: the keeper then asks the cell to stop
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C reaches cells through us, once
                pass_fds=[lock.fileno()],
            )
        finally:
            lock.close()  # the keeper holds it now
        return Kept(keeper, paths, cell.attempt)

    def _order(self, cell: Cell, paths: Paths, lock: int) -> dict[str, Any]:
        return {
            "command": [sys.executable, "-m", self.module, str(paths.job)],
            "attempt": cell.attempt,
            "heading": f"--- attempt {cell.attempt}, {time.strftime('%Y-%m-%d %H:%M:%S')}\n",
            "log": cell.log,
            "log_limit": self.settings.log_limit_mb * 1e6,
            "grace_s": self.settings.grace_s,
            "lock": lock,
            "who": str(paths.who),
            "record": str(paths.record),
        }

    def settle(self, cell: Cell, hurry: Callable[[], bool]) -> Ended | None:
        """Wait for the keeper and the run's own lock, then end whoever still holds them."""
        paths = Paths(self.folder, cell.name)
        lock = Path(cell.run) / ".lock"

        def lives() -> bool:
            return holder_of(paths.lock) is not None or holder_of(lock) is not None

        end = time.monotonic() + self.settings.grace_s + SLACK_S
        while lives() and time.monotonic() < end and not hurry():
            time.sleep(POLL_S)
        if holder_of(paths.lock) is not None:
            paths.end_recorded()
        if holder := holder_of(lock):
            _kill_group(holder)
        end = time.monotonic() + SLACK_S
        while lives() and time.monotonic() < end:
            time.sleep(POLL_S)
        return paths.ended(cell.attempt)


class Paths:
    """Files of one cell under `jobs`."""

    def __init__(self, folder: Path, name: str):
        jobs = folder / "jobs"
        self.job = jobs / f"{name}.json"
        self.order = jobs / f"{name}.order"
        self.lock = jobs / f"{name}.lock"
        self.who = jobs / f"{name}.who"
        self.record = jobs / f"{name}.end"

    def ended(self, attempt: int) -> Ended | None:
        """What the keeper recorded of an attempt."""
        try:
            found = json.loads(self.record.read_bytes())
        except (OSError, ValueError):
            return None
        if found.pop("attempt") != attempt:
            return None
        return Ended(**found)

    def pid(self) -> int | None:
        """The cell's process."""
        try:
            return int(json.loads(self.who.read_bytes())["pid"])
        except (OSError, ValueError, KeyError):
            return None

    def end_recorded(self) -> None:
        """Kill the recorded process group, if it is still the one that was recorded."""
        try:
            who = json.loads(self.who.read_bytes())
        except (OSError, ValueError):
            return
        if who["started"] and started_at(who["pid"]) == who["started"]:
            _kill_group(who["pid"])


class Kept:
    """A cell with its keeper."""

    def __init__(self, keeper: subprocess.Popen[bytes], paths: Paths, attempt: int):
        self.keeper = keeper
        self.paths = paths
        self.attempt = attempt
        self.asked = False
        self.start = time.monotonic()

    def pid(self) -> int | None:
        """The cell's own process, not the keeper."""
        return self.paths.pid()

    def poll(self) -> Ended | None:
        """How it ended; a keeper that was killed has left no record, and its cell is ended."""
        if self.keeper.poll() is None:
            return None
        if self.keeper.stdin is not None:
            self.keeper.stdin.close()
        ended = self.paths.ended(self.attempt)
        if ended is not None:
            return ended
        self.paths.end_recorded()
        return Ended(
            code=self.keeper.returncode or 1,
            asked=self.asked,
            seconds=time.monotonic() - self.start,
            said="the process that watched over the cell was lost",
        )

    def ask(self) -> None:
        """Ask once."""
        if not self.asked:
            self.asked = True
            self._send(signal.SIGTERM)

    def kill(self) -> None:
        """The keeper ends the cell."""
        self.asked = True
        self._send(signal.SIGUSR2)

    def _send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.keeper.send_signal(number)


def _hold(lock: IO[str], name: str) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise RunError(
            f"{name} still has a process of an earlier start, which could not be ended (see "
            f"{lock.name}); end it, and give the same command again"
        ) from error


def _import_path() -> str:
    """Where this process finds modules, as PYTHONPATH."""
    return os.pathsep.join(path for path in sys.path if path)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(os.getpgid(pid), signal.SIGKILL)
