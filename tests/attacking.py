"""What tests of the sandbox share: short programs, and a count of living processes."""

from __future__ import annotations

import os
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
