"""Texts of hints: facts from tests, contrasts of programs, pruned prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from code_envs import user_task

from selfdistill_cli.core.types import Message
from selfdistill_cli.envs.code import hints


def test_evidence_leaves_out_what_is_long_or_needs_other_names(tmp_path: Path) -> None:
    tests = ["import math", "x = 1", "assert f(x) == 2", "assert math.isclose(f(3), 4)"]
    tests.append(f"assert f(1) == {[0] * 100}")
    task = user_task(tmp_path, prompt="Write f.", test_list=tests)
    assert hints.evidence(task, 0) == "assert math.isclose(f(3), 4)"
    calls = [{"args": [[0] * 100], "expected": 0}]
    assert hints.evidence(user_task(tmp_path, prompt="f", calls=calls), 0) is None


@pytest.mark.parametrize(
    ("results", "common"),
    [
        ([[1, 2, 2], [], [0, 5]], "list, ascending, not negative"),
        ([[9, 0, -18], [3]], "list, descending, distinct, divisible by 3"),
        ([[3, 1, 2], [-1, 1]], "list, distinct"),
        ([[1], []], "list, not negative"),
        ([[], []], "list"),
        ([[[1], [2]], [[0]]], "list"),
        ([-4, -6, 0], "int, not positive, divisible by 2"),
        ([0, 0], "int, not negative, not positive"),
        ([0.5, 1.5], "float, not negative"),
        ([True, False], "bool"),
        (["b", "a"], "str"),
        ([1, 1.5], None),
        ([1, None], None),
        ([1], None),
    ],
)
def test_evidence_says_what_all_results_share(
    tmp_path: Path, results: list[Any], common: str | None
) -> None:
    calls = [{"args": [i], "expected": result} for i, result in enumerate(results)]
    text = hints.evidence(user_task(tmp_path, prompt="Write f.", calls=calls), 0)
    lines = (text or "").splitlines()
    assert [line for line in lines if not line.startswith("f(")] == (
        [] if common is None else [f"all: {common}"]
    )


def test_evidence_shows_the_longest_results(tmp_path: Path) -> None:
    calls = [{"args": [i], "expected": [0] * (i % 7)} for i in range(20)]
    task = user_task(tmp_path, prompt="Write f.", calls=calls)
    shown = {line for seed in range(40) for line in (hints.evidence(task, seed) or "").splitlines()}
    assert shown == {
        *(f"f({i}) is [0, 0, 0, 0, 0, 0]" for i in (6, 13)),
        *(f"f({i}) is [0, 0, 0, 0, 0]" for i in (5, 12)),
        "all: list, ascending, descending, not negative, not positive",
    }


@pytest.mark.parametrize(
    ("good", "bad", "expected"),
    [
        (
            "return sum(x for x in xs if x > 7)",
            "return sum(x for x in xs if x >= 7)",
            "Do: if x > 7\nNot: if x >= 7",
        ),
        (
            "return max((x for x in xs), default=0)",
            "return sum(x for x in xs)",
            "Do: return max(( ... xs), default=0)\nNot: return sum( ... xs)",
        ),
        ("return [x for x in xs]", "return [x for x in xs if x]",
         "Do: in xs]\nNot: in xs if x]"),
        ("a = 1\nreturn a", "a =  1\n\nreturn a", None),
        ("return a", "", "Do: return a\nNot: "),
    ],
)  # fmt: skip
def test_contrast(good: str, bad: str, expected: str | None) -> None:
    assert hints.contrast(good, bad) == expected


def test_contrast_of_long_programs_is_short() -> None:
    good = "\n".join(f"a{i} = b{i} + {i} * c{i % 7}" for i in range(200))
    bad = "\n".join(f"a{i} = b{i} - {i} * c{i % 5}" for i in range(200))
    text = hints.contrast(good, bad)
    assert text is not None
    assert len(text) < 600


@pytest.mark.parametrize(
    ("prompt", "short"),
    [
        ("Double it.\nThe input is a number.", "Double it.\nName the function f."),
        ("Write f so that\nf(2) gives 4.", "Write f so that"),
        ("Let f(a, b) give the larger of a and b.", "Write f(a, b)."),
    ],
)
def test_pruned_prompts_of_users_text(tmp_path: Path, prompt: str, short: str) -> None:
    task = user_task(tmp_path, prompt=prompt, calls=[{"args": [], "expected": 0}])
    assert hints.pruned(task) == (Message(role="user", content=short),)


def test_a_check_without_shown_asserts_gives_no_evidence(tmp_path: Path) -> None:
    test = "def check(candidate):\n    for i in range(3):\n        assert candidate(i) == i"
    assert hints.evidence(user_task(tmp_path, prompt="Write f.", test=test), 0) is None
    own = "assert f(2) == 3, 'wrong'\nassert 1 == 1"
    assert hints.evidence(user_task(tmp_path, prompt="f", test=own), 0) == "assert f(2) == 3"
