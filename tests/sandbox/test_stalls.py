"""A machine that stalls before a program is confined: the program is not the one who is late."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from attacking import server

from selfdistill_cli.sandbox import running, worker
from selfdistill_cli.sandbox.jobs import CallJob, CallReport, ProgramJob, StdioJob, StdioReport
from selfdistill_cli.sandbox.sandbox import LOST, Sandbox

Make = Callable[..., Sandbox]
CALL = CallJob(program="def f(x): return x + 1", entry_point="f", calls=((1,),))
SCRIPT = StdioJob(program="print(int(input()) + 1)", inputs=("1\n",))


def call(box: Sandbox) -> CallReport:
    return box.run_calls([CALL])[0]


def stdio(box: Sandbox) -> StdioReport:
    return box.run_stdio([SCRIPT])[0]


@contextlib.contextmanager
def stalled(pid: int, seconds: float) -> Iterator[None]:
    """Stop a process now, and let it go on after a while."""
    os.kill(pid, signal.SIGSTOP)
    timer = threading.Timer(seconds, os.kill, (pid, signal.SIGCONT))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("level", ["bubblewrap", "landlock"])
def test_a_stall_before_confinement_is_waited_for(make_sandbox: Make, level: str) -> None:
    box = make_sandbox(level=level, time_limit_s=0.1)  # a wall-clock limit of 1.3 s
    box.start()
    first = server(box)
    with stalled(first, 1.6):
        assert call(box).results[0].value == 2
    with stalled(first, 1.6):
        assert stdio(box).results[0].output == "2\n"
    job = ProgramJob(program=CALL.program, entry_point="f", setup="", tests=("assert f(1) == 2",))
    with stalled(first, 1.6):
        assert box.run_programs([job])[0].results[0].status == "passed"
    assert server(box) == first


@pytest.mark.parametrize("act", [call, stdio])
def test_a_worker_that_does_not_start_programs_is_replaced(
    make_sandbox: Make, monkeypatch: pytest.MonkeyPatch, act: Callable[[Sandbox], object]
) -> None:
    box = make_sandbox(level="landlock")
    box.start()
    wanted, first = act(box), server(box)
    monkeypatch.setattr(running, "CONFINE_LIMIT_S", 0.5)
    monkeypatch.setattr(worker, "BURIAL_LIMIT_S", 0.5)  # of the program before
    with stalled(first, 20.0):
        start = time.monotonic()
        assert act(box) == wanted
        assert time.monotonic() - start < 15.0
        assert server(box) != first


def test_the_time_limit_begins_when_the_program_does(make_sandbox: Make) -> None:
    box = make_sandbox(level="landlock", time_limit_s=0.1)
    box.start()
    slow = CallJob(
        program="import time\ndef f(x):\n    time.sleep(x)\n    return x",
        entry_point="f",
        calls=((0.6,), (9.0,)),
    )
    with stalled(server(box), 1.0):
        report = box.run_calls([slow])[0]
    assert [result.status for result in report.results] == ["returned", "timeout"]


def test_workers_that_never_start_a_program_cost_one_job(
    make_sandbox: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = make_sandbox(level="landlock")
    box.start()
    monkeypatch.setattr(running, "CONFINE_LIMIT_S", 0.0)
    report = call(box)
    assert (report.status, report.message) == ("crashed", LOST)
    monkeypatch.undo()
    assert call(box).results[0].value == 2
