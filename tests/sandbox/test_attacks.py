"""Programs that want to pass without being right, to look around, or to do harm.

None may gain a pass that it did not earn, none may reach a file, a process or the network, and
after each of them the same sandbox runs the next program.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from selfdistill_cli.sandbox.jobs import CallJob, CallReport, ProgramJob
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


@pytest.fixture(autouse=True)
def _survival(sandbox: Sandbox) -> object:
    """After every attack: the next program runs, and no process is left over."""
    job = ProgramJob(program=RIGHT, entry_point="f", setup="", tests=("assert f(1) == 2",))
    assert sandbox.run_programs([job])[0].results[0].status == "passed"
    before = processes()
    yield
    report = run(sandbox, RIGHT)
    assert [result.value for result in report.results] == [2, 3]
    deadline = time.monotonic() + 5
    while len(processes()) > len(before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(processes()) <= len(before)


LIMITS = {
    "infinite loop": (body("while True: pass"), "timeout"),
    "loop that swallows": (
        "import signal\nfor s in (14, 24, 2, 15):\n    signal.signal(s, signal.SIG_IGN)\n"
        + body("while True:\n    try:\n        while True: pass\n    except BaseException: pass"),
        "timeout",
    ),
    "infinite loop at import": ("while True: pass", "timeout"),
    "regular expression": (
        body("import re\nreturn re.match(r'(a|a)*$', 'a' * 60 + 'b')"),
        "timeout",
    ),
    "memory bomb": (body("return len(bytearray(10**10))"), "memory"),
    "slow memory bomb": (
        body("a = []\nwhile True: a.append(bytearray(1 << 20))"),
        "memory",
    ),
    "exit": (body("import sys\nsys.exit(0)"), "raised"),
    "hard exit": (body("import os\nos._exit(0)"), "crashed"),
    "segmentation fault": (body("import ctypes\nctypes.string_at(8)"), "crashed"),
    "recursion": (body("return f(x)"), "raised"),
    "closed descriptors": (body("import os\nos.closerange(0, 64)\nreturn x + 1"), "crashed"),
    "large result": (body("return 'a' * 50_000_000"), "bad_value"),
    "deep result": (
        body("a = []\nfor _ in range(100_000): a = [a]\nreturn a"),
        "bad_value",
    ),
    "object": (
        "class E:\n    def __eq__(self, other): return True\n" + body("return E()"),
        "bad_value",
    ),
    "subclass of int": (
        "class I(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\n"
        + body("return I(5)"),
        "bad_value",
    ),
}


@pytest.mark.parametrize("name", LIMITS)
def test_it_is_ended_or_refused(sandbox: Sandbox, name: str) -> None:
    program, status = LIMITS[name]
    start = time.monotonic()
    report = run(sandbox, program)
    assert {result.status for result in report.results} == {status}
    assert time.monotonic() - start < 15


LOADING = {
    "exit at import": ("import sys\nsys.exit(0)", "load_error"),
    "hard exit at import": ("import os\nos._exit(0)", "crashed"),
    "no function": ("g = 1", "no_entry_point"),
    "not a function": ("f = 1", "no_entry_point"),
    "syntax": ("def f(x) return", "compile_error"),
    "null byte": ("def f(x):\n    return '\0'", "compile_error"),
    "deep source": ("x = " + "(" * 5000 + ")" * 5000, "compile_error"),
    "pass marker": ("import os\nprint('ok passed', flush=True)\nos._exit(0)", "crashed"),
}


@pytest.mark.parametrize("name", LOADING)
def test_it_is_not_loaded(sandbox: Sandbox, name: str) -> None:
    program, status = LOADING[name]
    report = run(sandbox, program)
    assert report.status == status
    assert all(result.status == "crashed" for result in report.results)
    assert report.message


FORBIDDEN = {
    "fork": "os.fork()",
    "spawn": "os.posix_spawn('/bin/true', ['true'], {})",
    "shell": "subprocess.check_call('true', shell=True)",
    "exec": "os.execv(sys.executable, ['python'])",
    "kill parent": "os.kill(os.getppid(), 9)",
    "kill all": "os.kill(-1, 9)",
    "kill first": "os.kill(1, 9)",
    "kill group": "os.killpg(0, 9)",
    "tcp": "socket.socket()",
    "socket pair": "socket.socketpair()",
    "abstract socket": "socket.socket(socket.AF_UNIX)",
    "raise limits": "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "namespaces": "check(LIBC.unshare(0x10000000))",
    "ptrace": "check(LIBC.ptrace(16, os.getppid(), 0, 0))",
    "signal by descriptor": "fcntl.fcntl(3, 8, os.getppid())",
    "other user": "os.setuid(12345)",
    "shared memory": "check(LIBC.shmget(1, 4096, 0o1666))",
    "anonymous file": "os.memfd_create('x')",
    "hosts' users": "open('/etc/passwd').read()",
    "environment": "open('/proc/self/environ').read()",
    "memory of the parent": "open(f'/proc/{os.getppid()}/mem', 'rb').read(1)",
    "root folder": "open('/pwn', 'w').write('x')",
    "temporary folder": "open('/tmp/pwn', 'w').write('x')",
    "shared memory folder": "open('/dev/shm/pwn', 'w').write('x')",
    "Python's own files": "open(os.__file__, 'a').write('x')",
    "the sandbox's files": "open(sys.modules[wire].__file__, 'a').write('x')",
}
PRELUDE = """
import ctypes, fcntl, os, resource, socket, subprocess, sys
LIBC = ctypes.CDLL(None, use_errno=True)
wire = 'selfdistill_cli.sandbox.inside.wire'
def check(result):
    if result < 0: raise OSError(ctypes.get_errno(), 'refused')
    return result
def f(x):
    try: return [True, repr(eval(x))]
    except (OSError, ValueError) as error: return [False, type(error).__name__]
"""


@pytest.mark.parametrize("name", FORBIDDEN)
def test_it_is_not_possible(sandbox: Sandbox, name: str) -> None:
    result = run(sandbox, PRELUDE, FORBIDDEN[name]).results[0]
    assert result.status == "returned", result
    assert result.value[0] is False, result


def test_files_of_the_user_are_out_of_reach(sandbox: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("expected values")
    home = Path.home() / ".selfdistill-pwned"
    reads = (f"open({str(secret)!r}).read()", f"os.listdir({str(tmp_path)!r})")
    for attempt in (*reads, f"open({str(home)!r}, 'w').write('x')"):
        result = run(sandbox, PRELUDE, attempt).results[0]
        assert result.value[0] is False, result
    assert not home.exists()


def test_loopback_is_out_of_reach(sandbox: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        attempt = f"socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 1)"
        assert run(sandbox, PRELUDE, attempt).results[0].value[0] is False
        with pytest.raises(TimeoutError):
            server.accept()


def test_the_environment_is_empty(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    names = run(sandbox, "import os\ndef f(x): return sorted(os.environ)").results[0].value
    assert set(names) <= {"LC_ALL", "LC_CTYPE", "PWD", "PYTHONHASHSEED", "PYTHONUTF8", "TZ"}


def test_many_threads_are_bounded(sandbox: Sandbox) -> None:
    program = body(
        "import threading, time\nn = 0\ntry:\n    while n < 5000:\n"
        "        threading.Thread(target=time.sleep, args=(9,), daemon=True).start()\n"
        "        n += 1\nexcept RuntimeError: pass\nreturn n"
    )
    result = run(sandbox, program).results[0]
    assert result.status == "timeout" or result.value < 100


def test_printed_text_is_no_answer_and_costs_nothing(sandbox: Sandbox) -> None:
    flood = body("for _ in range(1000): print('{\"status\": \"returned\", \"value\": 2}' * 50)\n"
                 "return x")  # fmt: skip
    assert [result.value for result in run(sandbox, flood).results] == [1, 2]


FORGE = """
import os, json
def frame(message):
    body = json.dumps(message).encode()
    os.write(3, len(body).to_bytes(4, 'big') + body)
"""


@pytest.mark.parametrize(
    "program",
    [
        # before the question: the identifier is not known yet
        FORGE + "for i in range(9): frame({'id': '0' * 16, 'status': 'returned', 'value': 2})\n"
        + body("return x"),
        # after the true answer: a second answer is no answer to the next question
        FORGE + body(
            "import sys\nid = sys._getframe(2).f_locals['call']['id']\n"
            "frame({'id': id, 'status': 'returned', 'value': 2})\nreturn 3"
        ),
        FORGE + body("os.write(3, b'\\xff' * 100_000)"),
        FORGE + body("os.write(3, (10).to_bytes(4, 'big') + b'not json!!')"),
        FORGE + body("frame(['list', 2])"),
        FORGE + body("frame({'loaded': 'ok'})"),
        FORGE + body("os.write(3, (40_000).to_bytes(4, 'big') + b'[' * 40_000)"),
    ],
)  # fmt: skip
def test_forged_frames(sandbox: Sandbox, program: str) -> None:
    report = run(sandbox, program, 1, 2, 3)
    assert report.status == "crashed"
    assert report.results[-1].status == "crashed"
    assert sum(result.status == "returned" for result in report.results) <= 1


@pytest.mark.parametrize(
    "patch",
    [
        "import json\njson.dumps = lambda *a, **k: 'true'",
        "import builtins\nbuiltins.type = lambda x: bool\nbuiltins.isinstance = lambda *a: True",
        "import gc\n"
        "for o in gc.get_objects():\n"
        "    if isinstance(o, dict) and 'encode' in o: o['encode'] = lambda *a: 2",
    ],
)
def test_patched_modules_cannot_decide(sandbox: Sandbox, patch: str) -> None:
    """Whatever it patches, the answer is at best one value that the trusted side compares."""
    report = run(sandbox, patch + "\n" + body("return x"), 10, 20)
    values = [result.value for result in report.results if result.status == "returned"]
    assert 11 not in values
    assert 21 not in values


def test_scratch_files_do_not_reach_the_next_program(sandbox: Sandbox) -> None:
    write = body("try:\n    open('left', 'w').write('x')\nexcept OSError: pass\nreturn 1")
    look = body("import os\ntry: return os.listdir('.')\nexcept OSError: return []")
    run(sandbox, write)
    assert run(sandbox, look).results[0].value == []


def test_a_scratch_directory_is_small(sandbox: Sandbox) -> None:
    fill = body(
        "n = 0\ntry:\n    for i in range(100):\n        with open(str(i), 'wb') as file:\n"
        "            n += file.write(bytes(1 << 20))\nexcept OSError: pass\nreturn n >> 20"
    )
    assert run(sandbox, fill).results[0].value <= 2


def test_a_candidate_cannot_see_test_code(sandbox: Sandbox) -> None:
    program = body(
        "import gc\nword = chr(77) + 'AGIC'\n"
        "kinds = (dict, list, tuple)\n"
        "return word in str([o for o in gc.get_objects() if type(o) in kinds])"
    )
    setup = "def check(candidate):\n    secret = 'MAGIC'\n    assert candidate(1) is False"
    job = ProgramJob(program=program, entry_point="f", setup=setup, tests=("check(candidate)",))
    assert sandbox.run_programs([job])[0].results[0].status == "passed"


CHEATS = {
    "nothing": "def f(x): return None",
    "exit": "import sys\ndef f(x): sys.exit(0)",
    "hard exit": "import os\ndef f(x): os._exit(0)",
    "exit at import": "raise SystemExit(0)",
    "equal to all": (
        "class E:\n    def __eq__(s, o): return True\n    def __bool__(s): return True\n"
        "def f(x): return E()"
    ),
    "ends the iteration": "def f(x): raise StopIteration",
    "closes the generator": "def f(x): raise GeneratorExit",
    "interrupts": "def f(x): raise KeyboardInterrupt",
    "exception with a builtin's name": (
        "class StopIteration(Exception): pass\ndef f(x): raise StopIteration"
    ),
}
TESTS = (
    "check(candidate)",
    "for got, want in zip(map(candidate, [1, 2]), [2, 3]): assert got == want\nassert got == 3",
    "assert [candidate(i) for i in range(3)] == [1, 2, 3]",
)
LOOP = (
    "def check(c):\n    for got, want in zip(map(c, [1, 2]), [2, 3]):\n        assert got == want"
)


@pytest.mark.parametrize("name", CHEATS)
def test_cheats_fail_test_code(sandbox: Sandbox, name: str) -> None:
    job = ProgramJob(program=CHEATS[name], entry_point="f", setup=LOOP, tests=TESTS)
    report = sandbox.run_programs([job])[0]
    assert not [result for result in report.results if result.status == "passed"]
