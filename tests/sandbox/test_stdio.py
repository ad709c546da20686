"""Whole programs on standard input and output, at every level that this machine offers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest
from attacking import processes

from selfdistill_cli.core.errors import SandboxError
from selfdistill_cli.sandbox.jobs import StdioJob, StdioReport, StdioResult
from selfdistill_cli.sandbox.sandbox import Sandbox
from selfdistill_cli.sandbox.settings import SandboxSettings

DEFAULTS = {
    "workers": 1,
    "time_limit_s": 1.0,
    "memory_mb": 128,
    "max_file_mb": 2,
    "max_output_kb": 64,
}
ECHO = "import sys\nsys.stdout.write(sys.stdin.read())"


@pytest.fixture(scope="module", params=["bubblewrap", "landlock", "process"])
def box(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """A started sandbox at each level; skipped where the machine has no such level."""
    made = Sandbox(SandboxSettings(level=request.param, **DEFAULTS))
    try:
        made.start()
    except SandboxError as error:
        pytest.skip(str(error))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def nothing_is_left(box: Sandbox) -> Iterator[None]:
    """After every test the sandbox works, and no descriptor and no process is left over."""
    assert once(box, ECHO, "x").output == "x"
    descriptors, before = len(os.listdir("/proc/self/fd")), processes()
    yield
    assert once(box, ECHO, "x").output == "x"
    deadline = time.monotonic() + 5
    while len(processes()) > len(before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(processes()) <= len(before)
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def run(box: Sandbox, program: str, *inputs: str) -> StdioReport:
    return box.run_stdio([StdioJob(program=program, inputs=inputs, time_limit_s=0.3)])[0]


def once(box: Sandbox, program: str, text: str = "") -> StdioResult:
    return run(box, program, text).results[0]


READERS = {
    "input": "while True:\n    try:\n        print(input())\n    except EOFError:\n        break",
    "lines": "import sys\nfor line in sys.stdin:\n    print(line.rstrip())",
    "buffer": "import sys\nprint(sys.stdin.buffer.read().decode(), end='')",
    "open": "print(open(0).read(), end='')",
    "descriptor": "import os\nos.write(1, os.read(0, 1 << 16))",
    "fdopen": "import io, os\nprint(io.TextIOWrapper(os.fdopen(0, 'rb')).read(), end='')",
    "readline": "import sys\ninput = sys.stdin.readline\nfor _ in range(3): print(input().strip())",
    "main": "def f(): print(open(0).read(), end='')\nif __name__ == '__main__': f()",
    "thread": (
        "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(1 << 26)\n"
        "def main():\n    print(sys.stdin.read(), end='')\nthreading.Thread(target=main).start()"
    ),
    "fast output": (
        "import io, sys\nclass Fast(io.StringIO):\n"
        "    def flush(self): sys.__stdout__.write(self.getvalue()); self.truncate(0)\n"
        "text = sys.stdin.read()\nsys.stdout = Fast()\nprint(text, end='')"
    ),
    "detached": (
        "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.detach(), 'utf-8')\n"
        "print(sys.stdin.read(), end='')"
    ),
    "file never closed": "out = open(1, 'w', closefd=False)\nout.write(open(0).read())",
    "at exit": "import atexit, sys\natexit.register(lambda: print(sys.stdin.read(), end=''))",
    "writing after the end": (
        "class Late:\n    def __init__(self, text): self.text = text\n"
        "    def __del__(self): print(self.text, end='')\nlate = Late(open(0).read())"
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_every_way_of_reading_and_printing(box: Sandbox, name: str) -> None:
    result = once(box, READERS[name], "3\n1 2 3\nä€𝄞\n")
    assert result == StdioResult(status="finished", output="3\n1 2 3\nä€𝄞\n"), result


def test_each_input_has_a_process_of_its_own(box: Sandbox) -> None:
    program = (
        "import builtins\nbuiltins.seen = getattr(builtins, 'seen', 0) + 1\n"
        "print(builtins.seen, int(input()) * 2)"
    )
    report = run(box, program, "1", "2\n", "x", "4")
    assert report.status == "ok"
    assert [r.status for r in report.results] == ["finished", "finished", "raised", "finished"]
    assert [r.output for r in report.results] == ["1 2\n", "1 4\n", "", "1 8\n"]
    assert report.results[2].message.startswith("ValueError: invalid literal")


ENDINGS = {
    "sys.exit": ("import sys\nprint(1)\nsys.exit()", "finished", ""),
    "exit": ("print(1)\nexit()", "finished", ""),
    "exit(0)": ("print(1)\nexit(0)", "finished", ""),
    "quit": ("print(1)\nquit()", "finished", ""),
    "SystemExit": ("print(1)\nraise SystemExit", "finished", ""),
    "os._exit": ("import os\nprint(1, flush=True)\nos._exit(0)", "finished", ""),
    "closed output": ("import sys\nprint(1)\nsys.stdout.close()", "finished", ""),
    "channel closed": ("import os\nos.closerange(3, 64)\nprint(1)", "finished", ""),
    "exit code": ("import sys\nprint(1)\nsys.exit(3)", "exited", "exit code 3"),
    "exit text": ("import sys\nprint(1)\nsys.exit('bad')", "exited", "bad"),
    "exit code below": ("import os\nprint(1, flush=True)\nos._exit(7)", "exited", "exit code 7"),
    "exception": ("print(1)\n1 / 0", "raised", "ZeroDivisionError"),
    "end of input": ("print(1)\ninput()", "raised", "EOFError"),
    "interrupt": ("print(1)\nraise KeyboardInterrupt", "raised", "KeyboardInterrupt"),
    "at exit": ("import atexit\nprint(1)\natexit.register(lambda: None)", "finished", ""),
    "memory": ("print(1)\nx = bytearray(10**10)", "memory", "MemoryError"),
    "recursion": ("print(1)\ndef f(): f()\nf()", "raised", "RecursionError"),
    "segmentation fault": (
        "import ctypes\nprint(1, flush=True)\nctypes.string_at(8)", "crashed", "SIGSEGV",
    ),
    "loop": ("print(1, flush=True)\nwhile True: pass", "timeout", "time limit"),
    "loop at exit": (
        "import atexit\nprint(1, flush=True)\ndef f():\n    while True: pass\natexit.register(f)",
        "timeout", "time limit",
    ),
    "loop in a finalizer": (
        "print(1, flush=True)\nclass A:\n    def __del__(self):\n        while True: pass\na = A()",
        "timeout", "time limit",
    ),
    "thread that never ends": (
        "import threading, time\nprint(1, flush=True)\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()",
        "timeout", "time limit",
    ),
    "thread of no importance": (
        "import threading, time\nprint(1)\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "finished", "",
    ),
    "a second answer": (
        "import os\nfor _ in range(3): os.write(3, b'\\x00\\x00\\x00\\x02{}')\nprint(1)",
        "finished", "",
    ),
    "garbage on the channel": (
        "import os\nos.write(1, b'1\\n')\nos.write(3, b'\\xff' * 64)", "crashed", "malformed",
    ),
    "claims to be fine": (
        "import json, os\nprint(1, flush=True)\nbody = json.dumps({'problem': None}).encode()\n"
        "os.write(3, len(body).to_bytes(4, 'big') + body)\nos._exit(1)",
        "exited", "exit code 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDINGS)
def test_endings(box: Sandbox, name: str) -> None:
    program, status, message = ENDINGS[name]
    result = once(box, program)
    assert (result.status, result.output) == (status, "1\n"), result
    assert message in result.message
    assert bool(result.message) == (status != "finished")


@pytest.mark.parametrize(
    ("program", "status"), [("x = ", "compile_error"), ("x = " + "(" * 5000, "compile_error")]
)
def test_what_does_not_compile_is_tried_once(box: Sandbox, program: str, status: str) -> None:
    report = run(box, program, "1", "2", "3")
    assert report.status == status
    assert [result.status for result in report.results] == ["crashed"] * 3
    assert report.message


FLOODS = {
    "one line": "print('a' * 10**7)",
    "many lines": "while True: print('a' * 1000)",
    "stubborn": "while True:\n    try: print('a' * 1000, flush=True)\n    except OSError: pass",
    "descriptor": "import os\nfor _ in range(100): os.write(1, b'a' * 10**6)",
    "sparse": "import os\nos.lseek(1, 10**6, 0)\nos.write(1, b'a')",
    "grown": "import os\nos.ftruncate(1, 2 << 20)",
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_is_bounded_and_named(box: Sandbox, name: str) -> None:
    result = once(box, FLOODS[name])
    assert result.status == "output_limit"
    assert result.message == "it printed more than 64 KiB"
    assert len(result.output.encode()) <= 64 << 10


def test_output_up_to_the_limit_is_complete(box: Sandbox) -> None:
    assert len(once(box, "print('a' * (65536 - 1))").output) == 65536


def test_a_file_too_large_is_named(box: Sandbox) -> None:
    result = once(box, "import os\nos.ftruncate(1, 1 << 30)")
    assert result.status == "raised"
    assert "File too large" in result.message


def test_large_input(box: Sandbox) -> None:
    text = "\n".join(map(str, range(160_000)))
    assert len(text) > 1_000_000
    result = once(box, "import sys\nprint(sum(map(int, sys.stdin)))", text)
    assert result.output == f"{sum(range(160_000))}\n"


def test_bytes_that_are_no_text(box: Sandbox) -> None:
    result = once(box, "import os\nos.write(1, b'\\xff\\xfeok\\x00')")
    assert result.output == "\N{REPLACEMENT CHARACTER}" * 2 + "ok\x00"
    assert once(box, ECHO, "\udcff\ud800"[:1]).output == "\N{REPLACEMENT CHARACTER}"


def test_the_input_cannot_be_changed(box: Sandbox) -> None:
    attempts = (
        "os.write(0, b'x')",
        "os.pwrite(0, b'x', 0)",
        "os.ftruncate(0, 0)",
        "mmap.mmap(0, 2)",
        "open('/proc/self/fd/0', 'r+b').write(b'x')",
        "os.open('/proc/self/fd/0', os.O_WRONLY | os.O_TRUNC)",
    )
    program = (
        "import mmap, os\nrefused = 0\nfor attempt in open(0, closefd=False).read().splitlines():\n"
        "    try: eval(attempt); os.fsync(0)\n"
        "    except (OSError, ValueError): refused += 1\n"
        "os.lseek(0, 0, 0)\nprint(refused, os.read(0, 1 << 16).decode(), sep='\\n', end='')"
    )
    lines = "\n".join(attempts)
    assert once(box, program, lines).output in (f"{n}\n{lines}" for n in (5, 6))


def test_no_run_sees_the_output_of_another(box: Sandbox) -> None:
    program = "import os\nprint(input(), flush=True)\nos.lseek(1, 0, 0)\nprint(os.read(1, 999))"
    outputs = [result.output for result in run(box, program, "one", "two").results]
    assert outputs == ["one\nb'one\\n'\n", "two\nb'two\\n'\n"]


def test_scratch_files_do_not_reach_the_next_run(box: Sandbox) -> None:
    program = (
        "import os\ntry: print(os.listdir('.'))\nexcept OSError: print([])\n"
        "try: open('left', 'w').write('x')\nexcept OSError: pass"
    )
    outputs = [result.output for result in run(box, program, "1", "2", "3").results]
    assert outputs == ["[]\n"] * 3


def test_what_times_out_again_and_again_is_given_up(box: Sandbox) -> None:
    program = "text = input()\nwhile text == 'loop': pass"
    job = StdioJob(program=program, inputs=("loop", "end", "loop", "end", "loop"), time_limit_s=0.2)
    start = time.monotonic()
    report = box.run_stdio([job])[0]
    assert time.monotonic() - start < 10
    assert report.status == "timeout"
    statuses = [result.status for result in report.results]
    assert statuses == ["timeout", "finished", "timeout", "timeout", "timeout"]
    assert report.results[3].message == "not run: 2 inputs before exceeded the time limit"


def test_ten_times_the_same(box: Sandbox) -> None:
    program = (
        "import random, time\nprint(random.random(), hash('a'), {'x', 'y', 'z'}, time.tzname)\n"
        "print(object().__hash__() > 0)"
    )
    assert len({result.output for result in run(box, program, *["1"] * 10).results}) == 1


Make = Callable[..., Sandbox]


def test_jobs_side_by_side_keep_their_order(make_sandbox: Make) -> None:
    box = make_sandbox(workers=2)
    program = "import time\nn = int(input())\ntime.sleep(n / 100)\nprint(n)"
    jobs = [StdioJob(program=program, inputs=(f"{n}", f"{n + 1}")) for n in (5, 0, 3, 1)]
    outputs = [[r.output for r in report.results] for report in box.run_stdio(jobs)]
    assert outputs == [[f"{n}\n", f"{n + 1}\n"] for n in (5, 0, 3, 1)]
