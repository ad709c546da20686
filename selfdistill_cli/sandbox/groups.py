"""Control groups (version 2) around a fork server, where somebody has handed us a part of them.

An additional wall, never a required one: it bounds what the whole tree of processes uses, where
the limits of `confine` bound each process. Only a hierarchy in which the controllers are already
switched on for children is used; nothing outside the groups made here is changed.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

CONTROLLERS = ("memory", "pids")
PREFIX = "selfdistill-"
MAX_PROCESSES = 128
"""Of one fork server; threads count as processes."""
ENTER = 'echo $$ > "$0" && exec "$@"'
REMOVAL_LIMIT_S = 2.0


def ancestors(mountinfo: str, membership: str) -> Iterator[Path]:
    """Yield this process's group and those above it, innermost first.

    Takes the texts of /proc/self/mountinfo and /proc/self/cgroup.
    """
    own = re.search(r"^0::(/.*)$", membership, re.MULTILINE)
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        if own is None or right.split(" ")[0] != "cgroup2":
            continue
        root, mount = left.split(" ")[3:5]
        path = Path(own[1])
        if root != "/" and path.is_relative_to(root):
            path = Path("/") / path.relative_to(root)
        inner = Path(mount) / str(path).lstrip("/")
        yield from [inner, *inner.parents][: len(path.parts)]
        return


def parent() -> Path | None:
    """Return a group below which groups with limits can be made; None where there is none."""
    try:
        texts = [Path(f"/proc/self/{name}").read_text() for name in ("mountinfo", "cgroup")]
    except OSError:
        return None
    for folder in ancestors(*texts):
        try:
            enabled = (folder / "cgroup.subtree_control").read_text().split()
        except OSError:
            continue
        if set(CONTROLLERS) <= set(enabled) and _works(folder):
            return folder
    return None


def _works(folder: Path) -> bool:
    """Try it: make a group, enter it, remove it."""
    try:
        group = Group(folder, limits(1 << 30))
    except OSError:
        return False
    try:
        tried = subprocess.run(group.wrap(["/bin/true"]), capture_output=True, timeout=10)
        return tried.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
    finally:
        group.close()


def limits(memory_bytes: int) -> dict[str, str]:
    """Return what is written to a group's files; a file that does not exist is passed over."""
    return {
        "memory.max": str(memory_bytes),
        "memory.swap.max": "0",
        "pids.max": str(MAX_PROCESSES),
    }


class Group:
    """A control group of our own."""

    _count = 0

    def __init__(self, folder: Path, values: Mapping[str, str]) -> None:
        """Make it and set its limits; raises OSError."""
        Group._count += 1
        self.path = folder / f"{PREFIX}{os.getpid()}-{Group._count}"
        _sweep(folder)
        self.path.mkdir()
        for name, value in values.items():
            if (self.path / name).exists():
                (self.path / name).write_text(value)

    def wrap(self, command: list[str]) -> list[str]:
        """Return a command that enters the group before it becomes the given one."""
        return ["/bin/sh", "-c", ENTER, str(self.path / "cgroup.procs"), *command]

    def close(self) -> None:
        """Kill what is in it and remove it. May be called again."""
        with contextlib.suppress(OSError):
            (self.path / "cgroup.kill").write_text("1")
        deadline = time.monotonic() + REMOVAL_LIMIT_S
        while self.path.exists() and time.monotonic() < deadline:
            with contextlib.suppress(OSError):  # busy until the last process is gone
                self.path.rmdir()
                return
            time.sleep(0.005)


def make(folder: Path, values: Mapping[str, str]) -> Group | None:
    """Return a new group, or None where it cannot be made: it is never required."""
    try:
        return Group(folder, values)
    except OSError:
        return None


def _sweep(folder: Path) -> None:
    """Remove empty groups of processes that were killed before they could do it."""
    for path in folder.glob(f"{PREFIX}*-*"):
        owner = path.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            with contextlib.suppress(OSError):
                path.rmdir()
