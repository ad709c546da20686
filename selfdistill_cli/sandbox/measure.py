"""What isolation costs here, in milliseconds: for `selfdistill doctor` and the documentation."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from statistics import median

from selfdistill_cli.sandbox.jobs import CallJob, ProgramJob, StdioJob
from selfdistill_cli.sandbox.sandbox import Sandbox
from selfdistill_cli.sandbox.settings import SandboxSettings

FUNCTION = "def f(x):\n    return x + 1"
KINDS: dict[str, Callable[[Sandbox, int], Sequence[object]]] = {
    "call": lambda box, count: box.run_calls(
        [CallJob(program=FUNCTION, entry_point="f", calls=((1,), (2,), (3,)))] * count
    ),
    "program": lambda box, count: box.run_programs(
        [ProgramJob(program=FUNCTION, entry_point="f", setup="", tests=("assert f(1) == 2",))]
        * count
    ),
    "stdio": lambda box, count: box.run_stdio(
        [StdioJob(program="print(int(input()) + 1)", inputs=("1\n",))] * count
    ),
}
"""Jobs whose own time is next to nothing: three calls, one test statement, one input."""


def cold_ms(settings: SandboxSettings, repeats: int = 3) -> float:
    """Return the median time from nothing to the first report; raises SandboxError."""
    times = []
    for _ in range(repeats):
        box = Sandbox(settings, quiet=True)
        start = time.perf_counter()
        try:
            KINDS["call"](box, 1)
            times.append(1000 * (time.perf_counter() - start))
        finally:
            box.close()
    return median(times)


def warm_ms(box: Sandbox, kind: str, count: int) -> list[float]:
    """Return the time of each of `count` jobs of a kind, one after another, worker warm."""
    KINDS[kind](box, 2)
    times = []
    for _ in range(count):
        start = time.perf_counter()
        KINDS[kind](box, 1)
        times.append(1000 * (time.perf_counter() - start))
    return times


def batch_ms(settings: SandboxSettings, kind: str, count: int, workers: int) -> float:
    """Return the time per job of a batch with so many workers, all of them warm."""
    box = Sandbox(dataclasses.replace(settings, workers=workers), quiet=True)
    try:
        KINDS[kind](box, 4 * workers)
        start = time.perf_counter()
        KINDS[kind](box, count)
        return 1000 * (time.perf_counter() - start) / count
    finally:
        box.close()
