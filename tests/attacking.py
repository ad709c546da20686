"""What tests of the sandbox share: short programs, and a count of what they leave behind."""

from __future__ import annotations

import os
import time
from pathlib import Path

from selfdistill_cli.sandbox.jobs import CallJob, CallReport
from selfdistill_cli.sandbox.sandbox import Sandbox

RIGHT = "def f(x):\n    return x + 1"


def run(sandbox: Sandbox, program: str, *inputs: object, entry_point: str = "f") -> CallReport:
    calls = tuple((value,) for value in inputs or (1, 2))
    return sandbox.run_calls([CallJob(program=program, entry_point=entry_point, calls=calls)])[0]


def body(text: str) -> str:
    """Return `def f(x)` with this body."""
    return "def f(x):\n" + "\n".join(f"    {line}" for line in text.strip().splitlines())


def processes() -> set[int]:
    """Return all processes below this one, zombies included."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            parent = int(text.rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(entry.name))
    found: set[int] = set()
    todo = [os.getpid()]
    while todo:
        below = parents.get(todo.pop(), [])
        found.update(below)
        todo.extend(below)
    return found


def footprint() -> dict[str, int]:
    """Count what an attack could leave on this machine: see `excess`."""
    places = ("/", "/tmp", "/var/tmp", "/dev/shm", str(Path.home()), os.getcwd())
    files = {path for place in places for path in Path(place).glob("*pwn*")}
    objects = [Path(f"/proc/sysvipc/{kind}") for kind in ("shm", "sem", "msg")]
    return {
        "processes": len(processes()),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "files": len(files),
        "shared memory": sum(len(path.read_text().splitlines()) for path in objects),
    }


def excess(before: dict[str, int], seconds: float = 5.0) -> dict[str, int]:
    """Return what there is more of than before; processes are given time to be buried."""
    deadline = time.monotonic() + seconds
    while True:
        now = footprint()
        more = {name: now[name] - count for name, count in before.items() if now[name] > count}
        if not more or time.monotonic() >= deadline:
            return more
        time.sleep(0.01)


def resident_kb(pid: int | str = "self") -> int:
    """Return the memory that a process holds, in KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(row.split()[1]) for row in status.splitlines() if row.startswith("VmRSS"))


def below(pid: int) -> list[int]:
    """Return the children of a process."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def server(sandbox: Sandbox, seat: int = 0) -> int:
    """Return the fork server of a seat: under bubblewrap it is a child of what was started."""
    worker = sandbox._seats[seat].worker
    assert worker is not None
    started = worker._process.pid
    return below(started)[0] if sandbox.level.startswith("bubblewrap") else started
