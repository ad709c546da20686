"""Programs that want to pass without being right: forged answers, patches, tricks on test code."""

from __future__ import annotations

import pytest
from attacking import body, run

from selfdistill_cli.sandbox.jobs import ProgramJob
from selfdistill_cli.sandbox.sandbox import Sandbox

pytestmark = pytest.mark.usefixtures("survival")

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
