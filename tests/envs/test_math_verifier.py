"""Answers as expressions: equal ones are right, and none can hang the run."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from math_envs import math_env

from selfdistill_cli.envs.math import verifier
from selfdistill_cli.envs.math.verifier import Exact, MathVerify, is_bounded

HAS_PACKAGE = importlib.util.find_spec("math_verify") is not None
needs_package = pytest.mark.skipif(not HAS_PACKAGE, reason="math-verify is not installed")
LIMIT_S = 0.5


@pytest.fixture(scope="module")
def checker() -> Iterator[MathVerify]:
    made = MathVerify(LIMIT_S)
    made.check("\\sqrt{4}", "x")  # the first answer pays for the start
    yield made
    made.close()
    made.close()


EQUAL = [
    ("\\frac{1}{2}", "\\frac12"), ("2\\sqrt{2}", "\\sqrt{8}"), ("(1,2)", "(1, 2)"),
    ("x^2+2x+1", "(x+1)^2"), ("\\{1,2\\}", "\\{2,1\\}"), ("\\pi/2", "\\frac{\\pi}{2}"),
    ("42", "x=42"),
]  # fmt: skip
DIFFERENT = [
    ("9", "9^{9}"), ("12", "12, 13"), ("12", "12 or 13"), ("\\sqrt{2}", "1.4"), ("12", "x"),
    ("\\frac{1}{2}", "\\frac{1}{3}"), ("4", "4} or \\boxed{5"), ("5", "\\boxed{4} 5"),
    ("664", "83*8"), ("42", "6\\times 7"), ("42", "41 = 42"), ("42", "\\sqrt{1764}"),
]  # fmt: skip


@needs_package
@pytest.mark.parametrize(("expected", "given"), EQUAL)
def test_equal_expressions_are_right(checker, expected, given):
    assert checker.check(expected, given) == "right"


@needs_package
@pytest.mark.parametrize(("expected", "given"), DIFFERENT)
def test_other_expressions_are_not(checker, expected, given):
    assert checker.check(expected, given) != "right"


HANGS = [
    "9^{9^{9^{9}}}", "9**9**9**9", "(9**9)**(9**9)", "999999999!", "9^{999999999}", "3!!!!",
    "\\int_0^1 x^{x^x}\\sin(x^{100})dx", "\\sum_{n=1}^{100000000} \\frac{1}{n^2+1}",
    "(" * 200 + "1" + ")" * 200, "\\binom{99999999}{49999999}", "10^{10^{10}}",
    "\\prod_{n=1}^{9999}(x+n)", "__import__('os').system('touch PWNED')",
]  # fmt: skip


@needs_package
@pytest.mark.parametrize("given", HANGS)
def test_nothing_hangs(checker, given):
    start = time.monotonic()
    assert checker.check("\\sqrt{7}+1", given) in ("wrong", "refused", "timeout", "error")
    assert time.monotonic() - start < LIMIT_S * verifier.WALL_FACTOR + verifier.WALL_EXTRA_S + 5
    assert checker.check("\\sqrt{8}", "2\\sqrt{2}") == "right"


@needs_package
@pytest.mark.parametrize("given", ["9^{9^{9^{9}}}", "\\binom{99999999}{49999999}"])
def test_the_process_is_killed_where_the_grammar_lets_it_through(checker, given, monkeypatch):
    monkeypatch.setattr(verifier, "is_bounded", lambda text: True)
    assert checker.check("\\sqrt{7}", given) == "timeout"
    assert checker.check("\\sqrt{8}", "2\\sqrt{2}") == "right"


@needs_package
def test_code_in_an_answer_does_not_run(checker, monkeypatch, tmp_path):
    monkeypatch.setattr(verifier, "is_bounded", lambda text: True)
    mark = tmp_path / "mark"
    for given in (f"__import__('os').system('touch {mark}')", f"open('{mark}','w')"):
        assert checker.check("\\sqrt{7}", given) != "right"
        assert not mark.exists()


@needs_package
def test_threads_share_one_process(checker):
    said: list[str] = []
    threads = [
        threading.Thread(target=lambda: said.append(checker.check("\\sqrt{8}", "2\\sqrt{2}")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert said == ["right"] * 4


@needs_package
def test_a_closed_verifier_leaves_no_process_behind():
    made = MathVerify(LIMIT_S)
    assert made.check("\\sqrt{8}", "2\\sqrt{2}") == "right"
    process = made._worker._popen
    made.close()
    assert process.poll() is not None
    assert not Path(f"/proc/{process.pid}").exists()


@needs_package
def test_a_timeout_is_wrong_and_counted_and_told_once(monkeypatch, caplog):
    monkeypatch.setattr(verifier, "is_bounded", lambda text: True)
    monkeypatch.setattr(verifier, "is_calculation", lambda text: False)
    env = math_env(verifier="math_verify", time_limit_s=0.3)
    task = env.tasks("train")[0]
    outcomes = [env.grade(task, "#### \\binom{99999999}{49999999}") for _ in range(2)]
    env.close()
    assert all(o["verifier_timeouts"] == 1.0 and o["success"] == 0.0 for o in outcomes)
    assert caplog.text.count("env.time_limit_s") == 1


def test_exact_needs_equal_text_or_numbers():
    exact = Exact()
    assert [exact.check("1/2", text) for text in ("0.5", "\\frac12", "1" * 5000)] == [
        "right", "wrong", "too_long",
    ]  # fmt: skip


def test_what_is_bounded():
    good = ["\\frac{1}{2}", "x^2+2x+1", "(1, 2)", "2\\sqrt{2}", "10^{-3}", "5!", "x \\in [0, 1)"]
    assert [text for text in good if not is_bounded(text)] == ["x \\in [0, 1)"] or all(
        map(is_bounded, good)
    )
    bad = [*HANGS[:6], "a" * 301, "f'__class__'", '"x"', "}{", "{", "日本"]
    assert [text for text in bad if is_bounded(text)] == []
