"""Families of reasoning-gym: refused, scored here, or scored by the package without harm."""

from __future__ import annotations

import importlib.util
import sys
import time

import pytest
from math_envs import math_env, math_settings

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.envs.math.gym import REFUSED, Gym
from selfdistill_cli.envs.math.gym_scorers import OWN, arithmetic
from selfdistill_cli.testing import check_env

HAS_PACKAGE = importlib.util.find_spec("reasoning_gym") is not None
needs_package = pytest.mark.skipif(not HAS_PACKAGE, reason="reasoning-gym is not installed")
EXECUTING = {
    "binary_matrix", "countdown", "intermediate_integration", "n_queens",
    "polynomial_multiplication", "puzzle24", "simple_integration", "spiral_matrix",
    "string_insertion",
}  # fmt: skip
"""Families of the package whose scorers run the answer."""
SLOW = {"sokoban"}


def settings(name: str, **changes):
    return math_settings(
        **{"data": f"reasoning_gym:{name}", "answer_format": "tag", "num_tasks": 30, **changes}
    )


@pytest.mark.parametrize("name", REFUSED)
def test_refused_families_are_refused_with_the_reason(name):
    with pytest.raises(ConfigError, match="refused: ") as caught:
        Gym(settings(name))
    assert REFUSED[name] in str(caught.value)


def test_every_scorer_that_runs_answers_is_refused_or_replaced():
    assert REFUSED.keys() | OWN.keys() >= EXECUTING
    assert not REFUSED.keys() & OWN.keys()


def test_without_the_package_the_remedy_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    monkeypatch.setitem(sys.modules, "reasoning_gym.factory", None)
    with pytest.raises(ConfigError, match=r"pip install .reasoning-gym>="):
        math_env(data="reasoning_gym:gcd").tasks("train")


NUMBERS = {"metadata": {"numbers": [6, 61, 94, 4], "target": 309}}
BOARD = {"metadata": {"valid_answers": ["Q _\n_ Q", "_ Q\nQ _"]}}
ROLES = {"answer": "Al is a knight, and Bo is a knave."}
SCORED = [
    ("countdown", "94*4 - 61 - 6", NUMBERS, 1),
    ("countdown", "309", NUMBERS, 0),
    ("countdown", "(309+6+61+94+4)-(6+61+94+4)", NUMBERS, 0),
    ("countdown", "94*4-61-6+0", NUMBERS, 0),
    ("countdown", "9**9**9**9", NUMBERS, 0),
    ("countdown", "-" * 300 + "1", NUMBERS, 0),
    ("puzzle24", "10*(8 - 5) - 6", {"metadata": {"numbers": [8, 5, 10, 6]}}, 1),
    ("puzzle24", "6*4*1*1", {"metadata": {"numbers": [8, 5, 10, 6]}}, 0),
    ("puzzle24", "1/0", {"metadata": {"numbers": [1, 0]}}, 0),
    ("spiral_matrix", "1  2\n3", {"answer": "1 2 3"}, 1),
    ("spiral_matrix", "[1, 2, 3]", {"answer": "1 2 3"}, 0),
    ("binary_matrix", "0 1 \n1 0\n", {"answer": "0 1\n1 0"}, 1),
    ("binary_matrix", "0 1 1 0", {"answer": "0 1\n1 0"}, 0),
    ("string_insertion", "ABC", {"answer": "ABC"}, 1),
    ("string_insertion", "ABCD", {"answer": "ABC"}, 0),
    ("n_queens", "_ Q\nQ _", BOARD, 1),
    ("n_queens", "Q Q\nQ Q", BOARD, 0),
    ("gsm_symbolic", "1,000", {"answer": "1000"}, 1),
    ("gsm_symbolic", "20 or 1000", {"answer": "1000"}, 0),
    ("fraction_simplification", "2/3", {"answer": "$\\frac{2}{3}$"}, 1),
    ("fraction_simplification", "\\frac{2}{3}", {"answer": "2/3"}, 1),
    ("fraction_simplification", "4/6", {"answer": "2/3"}, 0),
    ("knights_knaves", "Bo is a knave, Al is a knight", ROLES, 1),
    ("knights_knaves", "Al is a knight, Bo is a knight, Bo is a knave", ROLES, 0),
    ("time_intervals", "0", {"answer": "0 days"}, 0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "answer", "entry", "expected"), SCORED)
def test_own_scorers(name, answer, entry, expected):
    assert OWN[name](answer, entry) == expected


def test_arithmetic_reads_nothing_else():
    for text in ("x", "f(1)", "1;2", "2**3", "1 if 1 else 2", "0x10", "1e3", "()", "1//2", ""):
        assert arithmetic(text) is None, text


@needs_package
@pytest.mark.parametrize("name", ["gcd", "countdown", "rush_hour", "prime_factorization"])
def test_a_family_keeps_the_contract(name):
    check_env(lambda: math_env_of(name), actions=("", "x", "<answer>0</answer>"), num_tasks=2)


def math_env_of(name: str, **changes):
    from selfdistill_cli.envs.math.env import MathEnv

    return MathEnv(settings(name, **changes))


@needs_package
def test_a_scorer_that_raises_gives_nothing_and_is_counted(caplog):
    env = math_env_of("prime_factorization")
    task = env.tasks("train")[0]
    outcome = env.grade(task, "<answer>x</answer>")
    assert (outcome["success"], outcome["scorer_errors"], outcome["verdict"]) == (0.0, 1.0, "error")
    assert "counted as scorer_errors" in caplog.text


@needs_package
def test_levels_and_options_reach_the_family():
    easy, hard = (Gym(settings("chain_sum", difficulty=level)) for level in (1, 3))
    shown = [next(gym.problems()).question for gym in (easy, hard)]
    assert len(shown[0]) < len(shown[1])
    one = Gym(settings("chain_sum", options={"min_terms": 2, "max_terms": 2, "min_digits": 1}))
    assert all(problem.question.count(" - ") + problem.question.count(" + ") == 1
               for problem in one.problems())  # fmt: skip
    with pytest.raises(ConfigError, match=r"env\.options"):
        Gym(settings("chain_sum", options={"nothing": 1}))
    with pytest.raises(ConfigError, match="did you mean 'chain_sum'"):
        Gym(settings("chain_sums"))


def payloads(mark: str) -> list[str]:
    """Answers that run a command where they are evaluated, and garbage."""
    call = f"__import__('os').system('touch {mark}')"
    return [
        call, f"[{call}]", f"(lambda: {call})()", f"{{'a': {call}}}", f'f"{{{call}}}"',
        f"!!python/object/apply:os.system ['touch {mark}']", f"$(touch {mark})", f"; touch {mark}",
        "", "x", "0", "nan", "1e999", "[]", "{}", "None", "9**9**9**9", "9" * 1900,
        "(" * 900 + ")" * 900, "[" * 900 + "]" * 900, "\n" * 900, "1/0", "\u0664\u0662 \u2028",
    ]  # fmt: skip


@needs_package
@pytest.mark.slow
def test_no_allowed_family_runs_an_answer_or_gives_garbage_full_marks(tmp_path):
    import reasoning_gym.factory as factory

    mark = tmp_path / "mark"
    told: list[str] = []
    for name in sorted(factory.DATASETS):
        if name in REFUSED or name in SLOW:
            continue
        options = (
            {"min_nodes": 6, "max_nodes": 6} if name == "knight_swap" else {}
        )  # its own levels are broken
        gym = Gym(settings(name, num_tasks=2, options=options))
        for problem in gym.problems():
            start = time.monotonic()
            if problem.answer is not None and gym.score(problem.index, problem.answer)[0] < 1.0:
                told.append(f"{name}: its own answer is wrong")
            for text in payloads(str(mark)):
                score, _ = gym.score(problem.index, text)
                if mark.exists():
                    mark.unlink()
                    told.append(f"{name}: ran {text}")
                if score >= 1.0 and text.strip() != problem.answer:
                    told.append(f"{name}: full marks for {text[:40]!r}")
            if time.monotonic() - start > 10:
                told.append(f"{name}: slow")
    assert told == []
