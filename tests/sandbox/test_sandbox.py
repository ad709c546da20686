"""What the sandbox promises to the rest of the house."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from selfdistill_cli.core.errors import SandboxError
from selfdistill_cli.sandbox import levels
from selfdistill_cli.sandbox.inside.wire import Unsendable
from selfdistill_cli.sandbox.jobs import CallJob, ProgramJob
from selfdistill_cli.sandbox.sandbox import Sandbox

Make = Callable[..., Sandbox]


def job(program: str, *inputs: object) -> CallJob:
    return CallJob(program=program, entry_point="f", calls=tuple((value,) for value in inputs))


def test_values_come_back_with_their_types(sandbox: Sandbox) -> None:
    inputs = (None, True, 3, 2.5, "ä", b"x", [1, (2, {3})], {"a": {1: 2}}, 10**30, float("inf"))
    report = sandbox.run_calls([job("def f(x): return x", *inputs)])[0]
    assert report.status == "ok"
    assert [result.value for result in report.results] == list(inputs)
    types = [type(result.value) for result in report.results]
    assert types == [type(value) for value in inputs]


def test_reports_are_in_the_order_of_the_jobs(make_sandbox: Make) -> None:
    program = "import time\ndef f(x):\n    time.sleep(x / 100)\n    return x"
    delays = [5, 0, 3, 0, 1, 0, 0, 2]
    reports = make_sandbox(workers=3).run_calls([job(program, delay) for delay in delays])
    assert [report.results[0].value for report in reports] == delays


def test_one_bad_call_does_not_spoil_the_others(sandbox: Sandbox) -> None:
    report = sandbox.run_calls([job("def f(x): return 10 // x", 5, 0, 2)])[0]
    assert [result.status for result in report.results] == ["returned", "raised", "returned"]
    assert report.results[1].message == "ZeroDivisionError: integer division or modulo by zero"


def test_a_timeout_keeps_what_was_answered_before(sandbox: Sandbox) -> None:
    report = sandbox.run_calls([job("def f(x):\n    while x == 2: pass\n    return x", 1, 2, 3)])[0]
    assert [result.status for result in report.results] == ["returned", "timeout", "timeout"]
    assert report.status == "timeout"


def test_sleep_ends_at_the_wall_clock_limit(make_sandbox: Make) -> None:
    box = make_sandbox(time_limit_s=0.2)
    box.start()
    start = time.monotonic()
    report = box.run_calls([job("import time\ndef f(x): time.sleep(60)", 1)])[0]
    assert report.results[0].status == "timeout"
    assert time.monotonic() - start < 10


def test_two_runs_are_equal(make_sandbox: Make) -> None:
    program = (
        "import random\nclass A: pass\n"
        "def f(x):\n    if x: raise ValueError(A())\n"
        "    return [random.random(), list({'a', 'b', 'c'}), hash('a')]"
    )
    reports = [make_sandbox().run_calls([job(program, 0, 1)])[0] for _ in range(2)]
    assert reports[0] == reports[1]
    assert reports[0].results[0].status == "returned"


def test_dataclasses_typing_and_the_standard_library_work(sandbox: Sandbox) -> None:
    program = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "from typing import List\nimport sqlite3, decimal, itertools, zoneinfo, tempfile\n"
        "@dataclass\nclass P:\n    x: List[int]\n"
        "def f(x):\n    return sum(P([x, 1]).x) + int(decimal.Decimal(2))"
    )
    assert sandbox.run_calls([job(program, 1)])[0].results[0].value == 4


def test_installed_packages_are_not_importable(sandbox: Sandbox) -> None:
    report = sandbox.run_calls([job("import numpy\ndef f(x): return x", 1)])[0]
    assert report.status == "load_error"
    assert "numpy" in report.message


def test_arguments_that_cannot_be_sent_are_an_error_of_the_caller(make_sandbox: Make) -> None:
    with pytest.raises(Unsendable):
        make_sandbox().run_calls([job("def f(x): return x", object())])


def test_large_arguments_pass_the_channel(sandbox: Sandbox) -> None:
    report = sandbox.run_calls([job("def f(x): return len(x)", "a" * 3_000_000)])[0]
    assert report.results[0].value == 3_000_000


def test_programs_as_tests(sandbox: Sandbox) -> None:
    setup = (
        "import math\nMETADATA = {}\ndef check(candidate):\n"
        "    assert candidate(1, 2) == 3\n    assert math.isclose(candidate(0.1, 0.2), 0.3)\n"
    )
    tests = (
        "check(candidate)",
        "assert add(2, 2) == 4, 'sum'",
        "assert add(2, 2) == 5",
        "add(1, 'a')",
        "try:\n    add(1, 'a')\nexcept TypeError:\n    pass\nelse:\n    assert False",
        "add(1, len)",
    )
    program = "def add(a, b):\n    return a + b"
    job = ProgramJob(program=program, entry_point="add", setup=setup, tests=tests)
    report = sandbox.run_programs([job])[0]
    found = [result.status for result in report.results]
    assert found == ["passed", "passed", "failed", "raised", "passed", "raised"]
    assert report.results[2].message == "assert add(2, 2) == 5 failed; add(2, 2) returned 4"


def test_broken_test_code_is_named_as_such(sandbox: Sandbox) -> None:
    job = ProgramJob(program="def f(): pass", entry_point="f", setup="1 / 0", tests=("f()",))
    report = sandbox.run_programs([job])[0]
    assert report.status == "test_error"
    assert "ZeroDivisionError" in report.message


def test_endless_test_code_is_ended(sandbox: Sandbox) -> None:
    job = ProgramJob(
        program="def f(): return 1", entry_point="f", setup="", tests=("while f(): pass", "f()")
    )
    report = sandbox.run_programs([job])[0]
    assert [result.status for result in report.results] == ["timeout", "timeout"]


def test_a_dead_worker_is_replaced(make_sandbox: Make) -> None:
    box = make_sandbox()
    right = job("def f(x): return x + 1", 1)
    assert box.run_calls([right])[0].results[0].value == 2
    worker = box._seats[0].worker
    assert worker is not None
    os.kill(worker._process.pid, signal.SIGKILL)
    assert box.run_calls([right])[0].results[0].value == 2


def test_a_worker_that_dies_at_work_is_replaced_and_its_job_repeated(make_sandbox: Make) -> None:
    box = make_sandbox()
    box.start()
    worker = box._seats[0].worker
    assert worker is not None
    killer = f"sleep 0.3; kill -9 {worker._process.pid}"
    with subprocess.Popen(["sh", "-c", killer]) as process:
        program = "import time\ndef f(x):\n    time.sleep(0.6)\n    return x"
        report = box.run_calls([job(program, 7)])[0]
        process.wait(timeout=10)
    assert report.results[0].value == 7
    assert box._seats[0].worker is not worker


def test_nothing_is_started_before_use_and_close_can_be_repeated(make_sandbox: Make) -> None:
    box = make_sandbox()
    assert box._seats == []
    assert box.level
    worker = box._seats[0].worker
    assert worker is not None
    box.close()
    box.close()
    assert not worker.alive
    assert box.run_calls([job("def f(x): return x", 1)])[0].results[0].value == 1


def test_auto_falls_back_to_landlock(
    make_sandbox: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text(
        "#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n"
    )
    broken.chmod(0o755)
    monkeypatch.setattr(levels, "bubblewrap", lambda: str(broken))
    box = make_sandbox(level="auto")
    assert box.level.startswith("landlock")
    with pytest.raises(SandboxError, match=r"Permission denied.*env.sandbox=landlock"):
        make_sandbox(level="bubblewrap").start()


@pytest.mark.parametrize("interpreter", ["/bin/false", "/no/such/python"])
def test_it_never_falls_back_to_no_isolation(
    make_sandbox: Make, monkeypatch: pytest.MonkeyPatch, interpreter: str
) -> None:
    monkeypatch.setattr(levels, "python", lambda: interpreter)
    box = make_sandbox(level="auto")
    with pytest.raises(SandboxError, match=r"env\.sandbox=process"):
        box.run_calls([job("def f(x): return x", 1)])


def test_the_weak_level_says_so_and_still_limits(
    make_sandbox: Make, caplog: pytest.LogCaptureFixture
) -> None:
    box = make_sandbox(level="process")
    assert "ONLY" in box.level
    assert "WITHOUT ISOLATION" in caplog.text
    loop, bomb, daemon = (
        "def f(x):\n    while True: pass",
        "def f(x): return len(bytearray(10**10))",
        "import os\ndef f(x):\n    if os.fork() == 0:\n        os.setsid()\n"
        "        import time; time.sleep(60)\n    return os.getpid()",
    )
    statuses = [box.run_calls([job(p, 1)])[0].results[0].status for p in (loop, bomb)]
    assert statuses == ["timeout", "memory"]
    box.run_calls([job(daemon, 1)])  # root is exempt from the limit on processes
    assert box.run_calls([job("def f(x): return x", 1)])[0].results[0].value == 1
    worker = box._seats[0].worker
    assert worker is not None
    deadline = time.monotonic() + 5
    children = Path(f"/proc/{worker._process.pid}/task/{worker._process.pid}/children")
    while children.read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert children.read_text() == ""


@pytest.mark.parametrize("level", ["bubblewrap", "landlock"])
def test_it_dies_with_its_owner(level: str) -> None:
    code = (
        "from selfdistill_cli.sandbox.sandbox import Sandbox\n"
        "from selfdistill_cli.sandbox.settings import SandboxSettings\n"
        "from selfdistill_cli.sandbox.jobs import CallJob\n"
        f"box = Sandbox(SandboxSettings(level={level!r}, workers=1, time_limit_s=60, "
        "memory_mb=64, max_file_mb=1, max_output_kb=64))\n"
        "box.start(); print(box._seats[0].worker._process.pid, flush=True)\n"
        "program = 'import time\\ndef f(x): time.sleep(60)'\n"
        "box.run_calls([CallJob(program=program, entry_point='f', calls=((1,),))])\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        line = owner.stdout.readline()
        if not line:
            pytest.skip(f"no {level} on this machine")
        session = int(line)
        time.sleep(0.2)
        assert members(session)
        owner.kill()
    deadline = time.monotonic() + 5
    while members(session) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not members(session)


def members(first: int) -> list[int]:
    """Return living processes that descend from or are a fork server, found by its folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parent, session, state = int(stat[1]), int(stat[3]), stat[0]
            if state != "Z" and first in (int(entry.name), parent, session):
                found.append(int(entry.name))
    return found
