"""Programs that spy, patch, pull at signals, threads and descriptors, or will not end.

The test code of these tests is right and the programs are wrong: none of them may pass.
"""

from __future__ import annotations

import pickle
import time

import pytest
from attacking import RIGHT, body, run

from selfdistill_cli.sandbox.jobs import ProgramJob, StdioJob
from selfdistill_cli.sandbox.sandbox import Sandbox

pytestmark = pytest.mark.usefixtures("survival")

SECRET = 20_231  # what the test expects, which nothing that the program sees may contain
SETUP = (
    "import unittest\n"
    "class Case(unittest.TestCase):\n"
    f"    def test(self): self.assertEqual(candidate(1), {SECRET})\n"
    "def check(candidate):\n"
    f"    expected = {SECRET}\n"
    "    assert candidate(1) == expected\n"
)
TESTS = (
    "check(candidate)",
    f"assert f(1) == {SECRET}",
    f"assert f(1) in {{{SECRET}}}",
    f"assert not (f(1) != {SECRET})",
    f"assert [f(1)] == [{SECRET}]",
    f"assert sorted([f(1), 0], reverse=True)[0] == {SECRET}",
    "Case('test').debug()",
)


def verdicts(sandbox: Sandbox, program: str) -> list[str]:
    job = ProgramJob(program=program, entry_point="f", setup=SETUP, tests=TESTS, time_limit_s=0.3)
    return [result.status for result in sandbox.run_programs([job])[0].results]


def test_these_tests_can_be_passed(sandbox: Sandbox) -> None:
    assert verdicts(sandbox, f"def f(x): return {SECRET}") == ["passed"] * len(TESTS)


PATCHES = {
    "assertion error": "import builtins\nbuiltins.AssertionError = type('E', (Exception,), {})",
    "comparison": "import operator\noperator.eq = lambda a, b: True",
    "every builtin": (
        "import builtins\nfor n in ('all', 'any', 'len', 'sum', 'sorted', 'isinstance', 'bool'):\n"
        "    setattr(builtins, n, lambda *a, **k: True)"
    ),
    "unittest": (
        "import unittest\nunittest.TestCase.assertEqual = lambda *a: None\n"
        "unittest.TestCase.debug = lambda s: None"
    ),
    "math": "import math\nmath.isclose = lambda *a, **k: True",
    "modules of the grader": (
        "import sys\nfor name in list(sys.modules):\n"
        "    if 'selfdistill' in name or name == 'tests':\n"
        "        for key in list(vars(sys.modules[name])):\n"
        "            if not key.startswith('__'): setattr(sys.modules[name], key, lambda *a: 1)"
    ),
    "no grader": (
        "import sys\nfor name in list(sys.modules):\n"
        "    if 'selfdistill' in name: del sys.modules[name]"
    ),
    "import hook": (
        "import sys\nclass Hook:\n    def find_spec(s, *a): raise ImportError\n"
        "sys.meta_path[:] = [Hook()]\nsys.path_hooks.clear()\nsys.path.clear()"
    ),
    "import function": "import builtins\nbuiltins.__import__ = lambda *a, **k: None",
    "tracing": (
        "import sys\ndef trace(frame, event, arg):\n"
        "    if event == 'exception': frame.f_trace = None\n    return trace\nsys.settrace(trace)"
    ),
    "profile": "import sys\nsys.setprofile(lambda *a: sys.exit(0))",
    "exception hook": "import os, sys\nsys.excepthook = lambda *a: os._exit(0)",
    "marker": "print('1 passed')\nprint('OK')\nimport sys\nsys.stderr.write('OK')",
    "marker and exit": "import os\nos.write(1, b'OK\\n1 passed\\n')\nos._exit(0)",
    "exit": "import sys\nsys.exit(0)",
    "atexit": "import atexit, os\natexit.register(os._exit, 0)",
}


@pytest.mark.parametrize("name", PATCHES)
def test_patches_reach_no_test(sandbox: Sandbox, name: str) -> None:
    found = verdicts(sandbox, PATCHES[name] + "\n" + RIGHT)
    assert len(found) == len(TESTS)
    assert "passed" not in found


RETURNS = {
    "always equal": "def __eq__(s, o): return True",
    "never different": "def __ne__(s, o): return False",
    "hash of everything": "def __eq__(s, o): return True\n    def __hash__(s): return hash(20231)",
    "order": "def __lt__(s, o): return False\n    def __eq__(s, o): return True",
    "patches in its comparison": (
        "def __eq__(s, o):\n        import builtins; builtins.AssertionError = Warning\n"
        "        return True"
    ),
    "exits in its comparison": "def __eq__(s, o):\n        import os; os._exit(0)",
    "attack on unpickling": "def __reduce__(s): return __import__('os')._exit, (0,)",
    "copies": "def __deepcopy__(s, m): return s\n    def __eq__(s, o): return True",
}


@pytest.mark.parametrize("base", ["object", "int", "list"])
@pytest.mark.parametrize("name", RETURNS)
def test_objects_are_no_values(sandbox: Sandbox, name: str, base: str) -> None:
    program = f"class V({base}):\n    {RETURNS[name]}\n" + body("return V()")
    assert set(verdicts(sandbox, program)) == {"bad_value"}
    assert run(sandbox, program, 1).results[0].status == "bad_value"


def test_pickles_stay_bytes(sandbox: Sandbox) -> None:
    attack = pickle.dumps(print)
    report = run(sandbox, "import pickle\ndef f(x): return pickle.dumps(print)", 1)
    assert type(report.results[0].value) is bytes
    assert report.results[0].value[:2] == attack[:2]


@pytest.mark.parametrize(
    "value", ["10**5000", "float('nan')", "1e308 * 10", "-0.0", "'\\ud800' * 99", "'a' * 60_000"]
)
def test_strange_values_are_compared_and_described(sandbox: Sandbox, value: str) -> None:
    found = verdicts(sandbox, f"def f(x): return {value}")
    assert set(found) <= {"failed", "raised"}  # a text has no order among numbers
    assert found[:5] == ["failed"] * 5


SPIES = {
    "frames": (
        "import sys\nframe, seen = sys._getframe(), []\nwhile frame:\n"
        "    seen += [frame.f_locals, frame.f_globals, frame.f_code.co_consts]\n"
        "    frame = frame.f_back\ntext = repr(seen)"
    ),
    "frames of threads": (
        "import sys\ntext = repr([f.f_locals for f in sys._current_frames().values()])"
    ),
    "garbage": (
        "import gc\nkinds = (dict, list, tuple)\n"
        "text = repr([o for o in gc.get_objects() if type(o) in kinds])"
    ),
    "modules": "import sys\ntext = repr([vars(m) for m in list(sys.modules.values()) if m])",
    "files": (
        "import os\ntext = ''\nfor top in ('.', '/tmp', '/home', '/root', '/box', '/work'):\n"
        "    for folder, inner, names in os.walk(top):\n"
        "        inner[:] = [name for name in inner if name != 'lib']\n"  # Python's own
        "        for name in names:\n"
        "            try: text += open(os.path.join(folder, name), errors='replace').read()\n"
        "            except OSError: pass"
    ),
    "processes": (
        "import os\ntext = ''\nfor pid in [os.getppid(), 1, 'self', *range(2, 50)]:\n"
        "    for name in ('cmdline', 'environ', 'maps', 'stack'):\n"
        "        try: text += open(f'/proc/{pid}/{name}', errors='replace').read()\n"
        "        except OSError: pass"
    ),
    "channel": (
        "import fcntl, os, select\ntext = ''\nif select.select([3], [], [], 0.2)[0]:\n"
        "    text = repr(os.read(3, 1 << 16))"
    ),
    "descriptors": (
        "import os\ntext = ''\nfor fd in range(64):\n    if fd == 3: continue\n"
        "    try: os.lseek(fd, 0, 0); text += repr(os.read(fd, 1 << 16))\n    except OSError: pass"
    ),
    "arguments": "import sys\ntext = repr([sys.argv, sys.orig_argv, sys.flags, sys.path])",
}  # fmt: skip


@pytest.mark.parametrize("name", SPIES)
def test_nothing_that_a_program_sees_holds_the_answer(sandbox: Sandbox, name: str) -> None:
    """The program gives back what it found, if anywhere: then one of the tests would pass."""
    look = SPIES[name] + "\nimport re\nfound = re.findall(r'20\\W?231', text)\n"
    look += "return int(re.sub(r'\\W', '', found[0])) if found else len(text)"
    found = verdicts(sandbox, body(look))
    assert "passed" not in found
    report = run(sandbox, body(look), 1)
    assert report.results[0].status in ("returned", "crashed"), report


SIGNALS = {
    "timer": "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)",
    "timer that raises": (
        "import signal\ndef ring(*a): raise SystemExit(0)\nsignal.signal(signal.SIGALRM, ring)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)"
    ),
    "timer of its own time": (
        "import signal\nsignal.signal(signal.SIGVTALRM, lambda *a: 1 / 0)\n"
        "signal.setitimer(signal.ITIMER_VIRTUAL, 0.001, 0.001)"
    ),
    "no limit of time": "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)",
    "answers at the limit": (
        "import os, signal\nsignal.signal(signal.SIGXCPU, lambda *a: os._exit(0))"
    ),
    "fault handler": (
        "import faulthandler\nfaulthandler.dump_traceback_later(0.01, exit=True)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SIGNALS)
def test_signals_pass_nothing(sandbox: Sandbox, name: str) -> None:
    assert "passed" not in verdicts(sandbox, SIGNALS[name] + "\n" + RIGHT)
    endless = SIGNALS[name] + "\n" + body("while True: pass")
    start = time.monotonic()
    assert run(sandbox, endless, 1).results[0].status in ("timeout", "crashed", "raised")
    assert time.monotonic() - start < 10


THREADS = {
    "endless thread": "def g():\n    while True: pass",
    "thread that sleeps": "def g(): time.sleep(60)",
    "thread that answers": (
        "import json, os\ndef g():\n    while True:\n        try:\n"
        "            b = json.dumps({'status': 'returned', 'id': '0' * 16, 'value': 2}).encode()\n"
        "            os.write(3, len(b).to_bytes(4, 'big') + b)\n        except OSError: return"
    ),
    "thread that reads": "import os\ndef g():\n    while True: os.read(3, 1)",
    "thread that closes": "import os\ndef g():\n    while True:\n        os.closerange(3, 9)",
}


@pytest.mark.parametrize("daemon", [True, False])
@pytest.mark.parametrize("name", THREADS)
def test_threads_end_with_their_program(sandbox: Sandbox, name: str, daemon: bool) -> None:
    program = (
        f"import threading, time\n{THREADS[name]}\n"
        f"threading.Thread(target=g, daemon={daemon}).start()\ntime.sleep(0.02)\n{RIGHT}"
    )
    assert "passed" not in verdicts(sandbox, program)
    start = time.monotonic()
    job = StdioJob(program=program + "\nprint(f(1))", inputs=("",), time_limit_s=0.2)
    waits = not daemon and name.startswith(("endless", "thread that s"))
    result = sandbox.run_stdio([job])[0].results[0]
    if waits:  # as Python does: a program ends when its threads have ended
        assert result.status == "timeout"
    else:
        assert result.status in ("finished", "crashed", "timeout")
    assert time.monotonic() - start < 15


DESCRIPTORS = {
    "copied over": "import os\nos.dup2(0, 3)",
    "output into the channel": "import os\nos.dup2(3, 1)\nprint('x' * 99, flush=True)",
    "channel into a pipe": "import os\nr, w = os.pipe()\nos.dup2(w, 3)",
    "channel from a pipe": "import os\nr, w = os.pipe()\nos.write(w, b'\\0' * 99)\nos.dup2(r, 3)",
    "all of them": "import os\ntry:\n    while True: os.dup(3)\nexcept OSError: pass",
    "without waiting": "import os\nos.set_blocking(3, False)",
}


@pytest.mark.parametrize("name", DESCRIPTORS)
def test_descriptors_pass_nothing(sandbox: Sandbox, name: str) -> None:
    assert "passed" not in verdicts(sandbox, DESCRIPTORS[name] + "\n" + RIGHT)


HANGS = {
    "at exit": "import atexit, time\natexit.register(time.sleep, 60)",
    "finalizer": "import time\nclass A:\n    def __del__(s): time.sleep(60)\na = A()",
    "cycle": "import time\nclass A:\n    def __del__(s): time.sleep(60)\na = A()\na.a = a\ndel a",
    "thread": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()",
    "weak reference": (
        "import weakref, time\nclass A: pass\na = A()\nweakref.finalize(a, time.sleep, 60)"
    ),
}


@pytest.mark.parametrize("name", HANGS)
def test_a_program_that_hangs_at_its_end_costs_nothing(sandbox: Sandbox, name: str) -> None:
    """A function's process is killed when the last question is answered."""
    start = time.monotonic()
    report = run(sandbox, HANGS[name] + "\n" + RIGHT)
    assert [result.value for result in report.results] == [2, 3]
    assert time.monotonic() - start < 1.5
