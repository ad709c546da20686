"""The process between a sweep and one of its cells: `python -m selfdistill_cli.sweeping.keeper`.

It starts the cell's process in a session of its own, writes down what it says, asks it to stop when
the sweep asks or is gone, ends it when it does not stop in time, ends everything that it has left
behind, and records how it ended. So a sweep may be killed at any moment, and a cell may ignore
signals, start processes of its own, or speak without end. Standard library only: it starts in a
few hundredths of a second.

Standard input: its end is a request to stop. SIGTERM: the same. SIGUSR2: end the cell at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from selfdistill_cli.sweeping.bounded_log import BoundedLog

POLL_S = 0.1
LEFTOVERS_S = 2.0
"""How long a process that the cell left behind may take to end by itself."""
END_S = 5.0
MOST_SAID = 4000
"""Bytes of standard error that are kept with the outcome."""
PR_SET_CHILD_SUBREAPER = 36


class Keeper:
    """Watches one process to its end."""

    def __init__(self, order: dict[str, Any]):
        self.order = order
        self.log = BoundedLog(Path(order["log"]), int(order["log_limit"]))
        self.log.write(order["heading"].encode())
        self.said = b""
        self.requested = False
        self.at_once = False
        self.asked_at: float | None = None
        self.start = time.monotonic()
        for number in (signal.SIGTERM, signal.SIGUSR2):
            signal.signal(number, self._receive)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _adopt_orphans()
        self.job = subprocess.Popen(
            order["command"],
            stdin=subprocess.PIPE,  # closed by our end, whatever it is: the cell then stops
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def _receive(self, number: int, frame: object) -> None:
        self.requested = True
        self.at_once = self.at_once or number == signal.SIGUSR2

    def watch(self) -> dict[str, Any]:
        """Wait for the end; return what came of it."""
        assert self.job.stdout is not None
        assert self.job.stderr is not None
        with selectors.DefaultSelector() as ready:
            for stream in (sys.stdin, self.job.stdout, self.job.stderr):
                os.set_blocking(stream.fileno(), False)
                ready.register(stream, selectors.EVENT_READ)
            while not _has_ended(self.job.pid):
                self._listen(ready, POLL_S)
                self._hurry()
            seconds = time.monotonic() - self.start
            self._end_leftovers()
            end = time.monotonic() + LEFTOVERS_S
            while time.monotonic() < end and self._listen(ready, 0.0):
                pass
        return {
            "attempt": self.order["attempt"],
            "code": self.job.wait(),
            "asked": self.asked_at is not None,
            "seconds": seconds,
            "said": self.said.decode(errors="replace"),
        }

    def _listen(self, ready: selectors.BaseSelector, seconds: float) -> bool:
        """Take what the cell says; notice the end of the sweep. Returns whether there was any."""
        events = ready.select(seconds)
        for key, _ in events:
            stream: Any = key.fileobj
            try:
                data = os.read(stream.fileno(), 65536)
            except OSError:
                data = b""
            if not data:
                ready.unregister(stream)
            if stream is sys.stdin:
                self.requested = True
                continue
            self.log.write(data)
            if stream is self.job.stderr:
                self.said = (self.said + data)[-MOST_SAID:]
        return bool(events)

    def _hurry(self) -> None:
        """Ask the cell to stop, once; end it when it takes too long, or nobody waits for it."""
        if self.requested and self.asked_at is None:
            self.asked_at = time.monotonic()
            _send(self.job.pid, signal.SIGTERM)
        late = self.asked_at is not None and (
            time.monotonic() > self.asked_at + self.order["grace_s"]
        )
        if late or self.at_once:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.job.pid, signal.SIGKILL)

    def _end_leftovers(self) -> None:
        """End what the cell started, wherever it has put itself: orphans are ours to see.

        The cell is not reaped yet, so its process group cannot be another one by now.
        """
        if not Path("/proc/self/stat").exists():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.job.pid, signal.SIGKILL)
        gentle = time.monotonic() + LEFTOVERS_S
        last = gentle + END_S
        number = signal.SIGTERM
        while time.monotonic() < last:
            group = _group_lives(self.job.pid)
            orphans = [pid for pid in _children() if pid != self.job.pid]
            if not orphans and not group:
                return
            if time.monotonic() > gentle or self.at_once:
                number = signal.SIGKILL
            if group:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.job.pid, number)
            for pid in orphans:
                _send(pid, number)
            time.sleep(0.05)
            for pid in orphans:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)


def _adopt_orphans() -> None:
    """Become the parent of whatever the cell leaves behind (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _has_ended(pid: int) -> bool:
    """Whether a child has ended; it is not reaped, so its number stays taken."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _group_lives(group: int) -> bool:
    """Whether another process than the cell's own, which has ended, is in its group."""
    return any(int(fields[2]) == group and pid != group for pid, fields in _processes())


def _children() -> list[int]:
    return [pid for pid, fields in _processes() if int(fields[1]) == os.getpid()]


def _processes() -> list[tuple[int, list[str]]]:
    """Number of each process, and its state, parent and group; none where there is no /proc."""
    found: list[tuple[int, list[str]]] = []
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError):
                    stat = Path("/proc", name, "stat").read_text(errors="replace")
                    fields = stat.rpartition(")")[2].split()
                    if fields[0] != "Z" or int(fields[1]) == os.getpid():
                        found.append((int(name), fields[:3]))
    return found


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def started_at(pid: int) -> str:
    """When a process began, in ticks since the machine did: with its number, which one it is."""
    try:
        stat = Path("/proc", str(pid), "stat").read_text(errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]


def write_aside(path: Path, value: Any) -> None:
    """Replace a small JSON file."""
    aside = path.with_name(f".{path.name}.partial")
    aside.write_text(json.dumps(value))
    aside.replace(path)


def main() -> int:
    """Keep the cell that the file ORDER describes."""
    path = Path(sys.argv[1])
    order = json.loads(path.read_text())
    os.set_inheritable(order["lock"], False)  # held by this process alone, until its end
    keeper = Keeper(order)
    job = keeper.job.pid
    write_aside(Path(order["who"]), {"pid": job, "started": started_at(job)})
    outcome = keeper.watch()
    write_aside(Path(order["record"]), outcome)
    keeper.log.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
