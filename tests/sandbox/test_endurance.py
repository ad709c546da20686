"""Many programs, good ones and attacks mixed: every verdict as expected, and nothing adds up.

`pytest -m slow tests/sandbox/test_endurance.py -s` runs ten thousand and prints the figures.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from attacking import RIGHT, body, excess, footprint, resident_kb, server

from selfdistill_cli.core.errors import SandboxError
from selfdistill_cli.sandbox.jobs import CallJob, ProgramJob, StdioJob
from selfdistill_cli.sandbox.sandbox import Sandbox

BATCH = 100
FORGE = (
    "import json, os\nbody = json.dumps({'id': '0' * 16, 'status': 'returned', 'value': 2})\n"
    "os.write(3, len(body).to_bytes(4, 'big') + body.encode())\n"
)
LOOP = "while True: pass"
# weight, program, what `f(1)` and `f(2)` do
CALLS: list[tuple[int, str, str]] = [
    (300, RIGHT, "2 3"),
    (60, body("return x"), "1 2"),
    (60, body("return 2 // (x - 1)"), "raised 2"),
    (30, "def f(x) return", "crashed crashed"),
    (30, body("import sys\nsys.exit(0)"), "raised raised"),
    (30, body("import os\nos._exit(0)"), "crashed crashed"),
    (30, "import os\nos._exit(0)", "crashed crashed"),
    (30, body("return len(bytearray(10**10))"), "memory memory"),
    (20, body("return 'a' * 1_000_000"), "bad_value bad_value"),
    (20, body("return object()"), "bad_value bad_value"),
    (20, body("return f(x)"), "raised raised"),
    (20, body("import os\ntry: os.fork()\nexcept OSError: return 0"), "0 0"),
    (20, body("import socket\ntry: socket.socket()\nexcept OSError: return 0"), "0 0"),
    (20, body("import os\ntry: os.kill(os.getppid(), 9)\nexcept OSError: return 0"), "0 0"),
    (20, body("try: open('/pwn', 'w')\nexcept OSError: return 0"), "0 0"),
    (20, body("import ctypes\nctypes.string_at(8)"), "crashed crashed"),
    (20, body("import os\nos.closerange(0, 64)\nreturn x"), "crashed crashed"),
    (20, FORGE + RIGHT, "crashed crashed"),
    (20, body("print('x' * 100_000)\nreturn x"), "1 2"),
    (10, body("try: open('pwn', 'w').write('x' * 99)\nexcept OSError: pass\nreturn x"), "1 2"),
    (10, "import threading, time\nthreading.Thread(target=time.sleep, args=(9,)).start()\n" + RIGHT,
     "2 3"),
    (4, body(LOOP), "timeout timeout"),
    (4, body("try:\n    while True: pass\nexcept BaseException: return x"), "timeout timeout"),
    (4, body("import time\ntime.sleep(60)"), "timeout timeout"),
]  # fmt: skip
TESTS = ("check(candidate)", "assert f(2) == 3")
PROGRAMS: list[tuple[int, str, str]] = [
    (60, RIGHT, "passed passed"),
    (20, body("return 3"), "failed passed"),
    (20, body("raise StopIteration"), "raised raised"),
    (20, body("import os\nos._exit(0)"), "crashed crashed"),
    (20, "import builtins\nbuiltins.AssertionError = Warning\n" + body("return 0"),
     "failed failed"),
]  # fmt: skip
SCRIPTS: list[tuple[int, str, str]] = [
    (60, "print(int(input()) + 1)", "finished 2\n"),
    (20, "import sys\nprint(2)\nsys.exit(0)", "finished 2\n"),
    (20, "import os\nos._exit(0)", "finished "),
    (20, "print(1)\nexit(3)", "exited 1\n"),
    (20, "1 / 0", "raised "),
    (10, "while True: print('a' * 1000)", "output_limit"),
    (10, "x = bytearray(10**10)", "memory "),
    (2, LOOP, "timeout "),
]


@dataclass
class Record:
    """What was seen along the way."""

    wrong: Counter[str] = field(default_factory=Counter)
    parent_kb: list[int] = field(default_factory=list)
    servers_kb: list[int] = field(default_factory=list)
    more: list[dict[str, int]] = field(default_factory=list)
    done: int = 0


def draw(generator: random.Random) -> tuple[str, Any, str]:
    """Return a kind, a job and the expected verdict."""
    every = [("call", *row) for row in CALLS] + [("program", *row) for row in PROGRAMS]
    every += [("stdio", *row) for row in SCRIPTS]
    kind, _, program, expected = generator.choices(every, [row[1] for row in every])[0]
    limit = 0.1 if "sleep(60)" in program else 1.0
    if kind == "call":
        job: Any = CallJob(program=program, entry_point="f", calls=((1,), (2,)), time_limit_s=limit)
    elif kind == "program":
        setup = "def check(candidate): assert candidate(1) == 2"
        job = ProgramJob(program=program, entry_point="f", setup=setup, tests=TESTS)
    else:
        job = StdioJob(program=program, inputs=("1\n",))
    return kind, job, expected


def verdict(kind: str, report: Any) -> str:
    """Return a report in the words of the tables above."""
    if kind == "call":
        return " ".join(
            str(r.value) if r.status == "returned" else r.status for r in report.results
        )
    if kind == "program":
        return " ".join(r.status for r in report.results)
    (result,) = report.results
    flood = result.status == "output_limit"
    return result.status if flood else f"{result.status} {result.output}"


def run_batch(box: Sandbox, batch: list[tuple[str, Any, str]], record: Record) -> None:
    """Run a batch, one kind after another, and compare every verdict."""
    runners = {"call": box.run_calls, "program": box.run_programs, "stdio": box.run_stdio}
    for kind, runner in runners.items():
        part = [(job, expected) for name, job, expected in batch if name == kind]
        reports = runner([job for job, _ in part])  # type: ignore[operator]
        for (job, expected), report in zip(part, reports, strict=True):
            record.done += 1
            found = verdict(kind, report)
            if found != expected:
                record.wrong[f"{kind}: {job.program!r}: {found!r}, expected {expected!r}"] += 1


def endure(box: Sandbox, count: int) -> Record:
    """Run `count` programs and watch memory, processes, descriptors and files."""
    generator, record = random.Random(0), Record()
    run_batch(box, [draw(generator) for _ in range(40)], record)  # every seat is warm
    record.done = 0
    before = footprint()
    while record.done < count:
        size = min(BATCH, count - record.done)
        run_batch(box, [draw(generator) for _ in range(size)], record)
        record.parent_kb.append(resident_kb())
        seats = [i for i, seat in enumerate(box._seats) if seat.worker is not None]
        record.servers_kb.append(max(resident_kb(server(box, i)) for i in seats))
        record.more.append(excess(before))
    return record


def check(record: Record, count: int) -> None:
    """Raise unless all is as it should be."""
    assert record.done == count
    assert not record.wrong, record.wrong
    assert not any(record.more), record.more
    for sizes in (record.parent_kb, record.servers_kb):
        early, late = sizes[: max(1, len(sizes) // 4)], sizes[-max(1, len(sizes) // 4) :]
        assert max(late) < max(early) + 2048, sizes


@pytest.fixture
def endurance(make_sandbox: Callable[..., Sandbox]) -> Callable[[str, int], Record]:
    def run_at(level: str, count: int) -> Record:
        box = make_sandbox(level=level, workers=2, memory_mb=64, max_file_mb=1)
        try:
            box.start()
        except SandboxError as error:
            pytest.skip(str(error))
        return endure(box, count)

    return run_at


@pytest.mark.parametrize("level", ["bubblewrap", "landlock"])
def test_four_hundred_programs(endurance: Callable[[str, int], Record], level: str) -> None:
    check(endurance(level, 400), 400)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["bubblewrap", "landlock"])
def test_ten_thousand_programs(
    endurance: Callable[[str, int], Record], level: str, capsys: pytest.CaptureFixture[str]
) -> None:
    start = time.monotonic()
    record = endurance(level, 10_000)
    with capsys.disabled():
        print(
            f"\n{level}: {record.done} programs in {time.monotonic() - start:.0f} s, "
            f"{sum(record.wrong.values())} wrong verdicts; memory of the trusted process "
            f"{record.parent_kb[0]} to {record.parent_kb[-1]} KiB, of the largest fork server "
            f"{record.servers_kb[0]} to {record.servers_kb[-1]} KiB, at most "
            f"{max(record.servers_kb)}; left over: {[m for m in record.more if m] or 'nothing'}"
        )
    check(record, 10_000)
