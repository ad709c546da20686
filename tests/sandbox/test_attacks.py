"""Programs that want to pass without being right, to look around, or to do harm.

None may gain a pass that it did not earn, none may reach a file, a process or the network, and
after each of them the same sandbox runs the next program.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
from attacking import body, run

from selfdistill_cli.sandbox.jobs import StdioJob
from selfdistill_cli.sandbox.sandbox import Sandbox

pytestmark = pytest.mark.usefixtures("survival")

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
    "crash by recursion": (
        "import sys\nsys.setrecursionlimit(10**9)\n"
        + body("class A:\n    def __getattr__(s, n): return getattr(s, n + 'a')\nreturn A().x"),
        "crashed",
    ),
    "killed by its own clock": (
        body("import signal, time\nsignal.alarm(1)\ntime.sleep(3)"),
        "crashed",
    ),
    "huge integer": (body("return 10**300_000"), "bad_value"),
    "object that pickles to an attack": (
        "import os\nclass A:\n    def __reduce__(s): return os.system, ('touch /tmp/pwn',)\n"
        + body("return A()"),
        "bad_value",
    ),
    "generator": (body("yield x"), "bad_value"),
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
    "udp": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "ipv6": "socket.socket(socket.AF_INET6)",
    "raw": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)",
    "host beyond": "socket.create_connection(('192.0.2.1', 80), 1)",
    "web page": "__import__('urllib.request').request.urlopen('http://192.0.2.1', timeout=1)",
    "name lookup": "socket.getaddrinfo('example.org', 80)",
    "socket pair": "socket.socketpair()",
    "abstract socket": "socket.socket(socket.AF_UNIX)",
    "raise limits": "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "namespaces": "check(LIBC.unshare(0x10000000))",
    "ptrace": "check(LIBC.ptrace(16, os.getppid(), 0, 0))",
    "memory by system call": (
        "check(LIBC.syscall(310, os.getppid(), ctypes.byref(IO), 1, ctypes.byref(IO), 1, 0))"
    ),
    "signal by process descriptor": "signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 9)",
    "stop itself": "os.kill(os.getpid(), signal.SIGSTOP)",
    "signal by queue": "check(LIBC.sigqueue(os.getppid(), 9, 0))",
    "priority": "os.setpriority(os.PRIO_PROCESS, 0, -20)",
    "mount": "check(LIBC.mount(b'none', b'/scratch', b'tmpfs', 0, None))",
    "root": "os.chroot('.')",
    "device": "os.mknod('device', 0o600 | 0o020000, os.makedev(1, 1))",
    "link out": "os.symlink('/etc/passwd', 'link') or open('link').read()",
    "hard link": "os.link('/etc/passwd', 'link')",
    "permissions": "os.chmod(os.__file__, 0o777)",
    "signal by descriptor": "fcntl.fcntl(3, 8, os.getppid())",
    "other user": "os.setuid(12345)",
    "shared memory": "check(LIBC.shmget(1, 4096, 0o1666))",
    "anonymous file": "os.memfd_create('x')",
    "hosts' users": "open('/etc/passwd').read()",
    "hosts' secrets": "open('/etc/shadow').read()",
    "environment": "open('/proc/self/environ').read()",
    "environment of the parent": "open(f'/proc/{os.getppid()}/environ').read()",
    "environment of the first": "open('/proc/1/environ').read()",
    "command lines": "open(f'/proc/{os.getppid()}/cmdline').read()",
    "processes": "os.listdir('/proc')",
    "own memory map": "open('/proc/self/maps').read()",
    "descriptors by name": "os.open('/proc/self/fd/3', os.O_RDWR)",
    "disks": "os.listdir('/sys/block')",
    "keys of the user": "os.listdir(os.path.expanduser('~/.ssh'))",
    "log in": "open(os.path.expanduser('~root/.netrc')).read()",
    "memory of the parent": "open(f'/proc/{os.getppid()}/mem', 'rb').read(1)",
    "root folder": "open('/pwn', 'w').write('x')",
    "temporary folder": "open('/tmp/pwn', 'w').write('x')",
    "shared memory folder": "open('/dev/shm/pwn', 'w').write('x')",
    "Python's own files": "open(os.__file__, 'a').write('x')",
    "the sandbox's files": "open(sys.modules[wire].__file__, 'a').write('x')",
}
PRELUDE = """
import ctypes, fcntl, os, resource, signal, socket, subprocess, sys
LIBC = ctypes.CDLL(None, use_errno=True)
IO = (ctypes.c_void_p * 2)()
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


def test_a_whole_program_can_do_none_of_it_either(sandbox: Sandbox) -> None:
    program = PRELUDE + "for line in sys.stdin:\n    print(f(line)[0])"
    job = StdioJob(program=program, inputs=("\n".join(FORBIDDEN.values()),), time_limit_s=10.0)
    result = sandbox.run_stdio([job])[0].results[0]
    assert result.status == "finished", result
    assert result.output.split() == ["False"] * len(FORBIDDEN)


def test_a_bounded_fork_bomb_has_no_children(sandbox: Sandbox) -> None:
    program = (
        "import os\nn = 0\ndef spawn(): return os.posix_spawn('/bin/sh', ['sh'], {})\n"
        "for make in (os.fork, os.forkpty, spawn):\n"
        "    for _ in range(20):\n        try:\n            if make() == 0: os._exit(0)\n"
        "            n += 1\n        except OSError: pass\n"
    )
    assert run(sandbox, program + body("return n"), 1).results[0].value == 0
    job = StdioJob(program=program + "print(n)", inputs=("",))
    assert sandbox.run_stdio([job])[0].results[0].output == "0\n"


def test_empty_files_without_number(sandbox: Sandbox) -> None:
    fill = body(
        "i = 0\ntry:\n    while True:\n        open(f'pwn{i}', 'w').close()\n        i += 1\n"
        "except OSError: return i"
    )
    assert run(sandbox, fill, 1).results[0].status in ("timeout", "returned")
    look = body("import os\ntry: return os.listdir('.')\nexcept OSError: return []")
    assert run(sandbox, look, 1).results[0].value == []


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
