"""Fork servers that are killed in the middle of a batch: replaced, and their jobs repeated once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from selfdistill_cli.sandbox.jobs import CallJob, ProgramJob, StdioJob
from selfdistill_cli.sandbox.sandbox import LOST, Sandbox

Make = Callable[..., Sandbox]
WORK = "import time\ndef f(x):\n    time.sleep(0.05)\n    return x + 1"


def victims(box: Sandbox) -> list[int]:
    """Return the started processes of workers that have a program running."""
    found = []
    for seat in list(box._seats):
        worker = seat.worker
        if worker is not None and worker._running:
            found.append(worker._process.pid)
    return found


@contextlib.contextmanager
def killing(box: Sandbox, kills: int, pause_s: float) -> Iterator[list[int]]:
    """Kill -9 fork servers that are at work, one after another, from another thread."""
    killed: list[int] = []
    over = threading.Event()

    def work() -> None:
        while len(killed) < kills and not over.wait(pause_s):
            found = victims(box)
            for pid in found[len(killed) % max(1, len(found)) :][
                :1
            ]:  # now one lane's, now the other's
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("level", ["bubblewrap", "landlock"])
def test_a_batch_survives_the_death_of_workers(make_sandbox: Make, level: str) -> None:
    box = make_sandbox(level=level, workers=2)
    box.start()
    calls = [CallJob(program=WORK, entry_point="f", calls=((i,), (i + 1,))) for i in range(40)]
    with killing(box, 3, 0.5) as killed:
        reports = box.run_calls(calls)
        values = [[result.value for result in report.results] for report in reports]
    assert values == [[i + 1, i + 2] for i in range(40)]
    assert killed
    programs = [
        ProgramJob(program=WORK, entry_point="f", setup="", tests=(f"assert f({i}) == {i + 1}",))
        for i in range(10)
    ]
    with killing(box, 1, 0.2) as killed:
        statuses = [report.results[0].status for report in box.run_programs(programs)]
    assert statuses == ["passed"] * 10
    assert killed
    script = "import time\ntime.sleep(0.05)\nprint(int(input()) + 1)"
    scripts = [StdioJob(program=script, inputs=(f"{i}\n",)) for i in range(10)]
    with killing(box, 1, 0.2) as killed:
        outputs = [report.results[0].output for report in box.run_stdio(scripts)]
    assert outputs == [f"{i + 1}\n" for i in range(10)]
    assert killed


def test_a_job_whose_worker_dies_twice_is_given_up(make_sandbox: Make) -> None:
    box = make_sandbox()
    box.start()
    slow = CallJob(
        program="import time\ndef f(x): time.sleep(2)", entry_point="f", calls=((1,), (2,))
    )
    with killing(box, 2, 0.3) as killed:
        report = box.run_calls([slow])[0]
    assert len(killed) == 2
    assert report.status == "crashed"
    assert [result.message for result in report.results] == [LOST, LOST]
    quick = CallJob(program=WORK, entry_point="f", calls=((1,),))
    assert box.run_calls([quick])[0].results[0].value == 2
    for pid in killed:
        assert not Path(f"/proc/{pid}").exists()


def test_every_status_of_a_test(make_sandbox: Make) -> None:
    program = (
        "def f(x):\n    if x == 2: return len(bytearray(10**10))\n    if x == 3: return f\n"
        "    if x == 4: raise KeyError(x)\n    while x == 5: pass\n    return x"
    )
    tests = (
        "assert f(1) == 1",
        "assert f(1) == 2",
        "assert f(4) == 1",
        "import time",
        "assert f(2) == 1",
        "assert f(3) == 1",
        "x = bytearray(10**10)",
        "assert f(5) == 5",
        "assert f(1) == 1",
    )
    job = ProgramJob(program=program, entry_point="f", setup="", tests=tests)
    report = make_sandbox().run_programs([job])[0]
    assert [result.status for result in report.results] == [
        "passed", "failed", "raised", "passed", "memory", "bad_value", "memory",
        "timeout", "timeout",
    ]  # fmt: skip
    calls = CallJob(program=program, entry_point="f", calls=tuple((i,) for i in range(1, 7)))
    found = [result.status for result in make_sandbox().run_calls([calls])[0].results]
    assert found == ["returned", "memory", "bad_value", "raised", "timeout", "timeout"]


def test_open_files_are_limited(make_sandbox: Make) -> None:
    program = (
        "import os\ndef f(x):\n    n = 0\n    try:\n        while True: os.dup(0); n += 1\n"
        "    except OSError as error: return [n, error.errno]"
    )
    job = CallJob(program=program, entry_point="f", calls=((1,),))
    start = time.monotonic()
    count, number = make_sandbox().run_calls([job])[0].results[0].value
    assert 40 < count < 64
    assert number == 24  # too many open files
    assert time.monotonic() - start < 10
