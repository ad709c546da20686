"""EvalPlus's forms: inputs whose results the reference makes, and tests that compare with numpy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from code_envs import make_env

from selfdistill_cli.core.errors import DataError
from selfdistill_cli.envs.code.readers import evalplus

PROMPT = 'def mean(xs):\n    """Return the mean."""\n'
INPUTS: dict[str, Any] = {
    "task_id": "HumanEval/x",
    "prompt": PROMPT,
    "entry_point": "mean",
    "canonical_solution": "    return sum(xs) / len(xs)\n",
    "contract": "    assert len(xs) > 0\n",
    "base_input": [[[1, 2]], [[5.0]]],
    "plus_input": [[[0.1, 0.2, 0.3]], [[-1e9, 3.0]]],
    "atol": 0,
}
HARNESS = """
import numpy as np

def is_floats(x) -> bool:
    if isinstance(x, float):
        return True
    if isinstance(x, (list, tuple)):
        return all(isinstance(i, float) for i in x)
    if isinstance(x, np.ndarray):
        return x.dtype == np.float64 or x.dtype == np.float32
    return False

def assertion(out, exp, atol):
    exact_match = out == exp
    if atol == 0 and is_floats(exp):
        atol = 1e-6
    if not exact_match and atol != 0:
        assert type(out) == type(exp)
        COMPARE
    else:
        assert exact_match

"""
COMPARES = (
    "assert np.allclose(out, exp, rtol=1e-07, atol=atol)",
    "np.testing.assert_allclose(out, exp, atol=atol)",
)
CHECK = """def check(candidate):
    inputs = [[[1, 2]], [[5.0]], [[0.1, 0.2]]]
    results = [1.5, 5.0, 0.15]
    for i, (inp, exp) in enumerate(zip(inputs, results)):
        assertion(candidate(*inp), exp, 0)
"""
MODULE = """inputs = [[[1, 2]], [[5.0]], [[0.1, 0.2]]]
results = [1.5, 5.0, 0.15]
for i, (inp, exp) in enumerate(zip(inputs, results)):
    assertion(mean(*inp), exp, 0)
"""
RIGHT = "def mean(xs):\n    return sum(xs) / len(xs)"
NEAR = "def mean(xs):\n    return sum(xs) / len(xs) + 4e-7"
WRONG = "def mean(xs):\n    return sum(xs) / len(xs) + 4e-5"
NOTHING = "def mean(xs):\n    return None"


def graded(tmp_path: Path, record: dict[str, Any], *programs: str) -> list[tuple[int, int]]:
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps(record))
    env = make_env(data=str(path))
    try:
        task = env.tasks("train")[0]
        outcomes = env.grade([task] * len(programs), programs)
    finally:
        env.close()
    assert all(outcome["status"] == "ok" for outcome in outcomes), outcomes
    return [(outcome["passed"], outcome["total"]) for outcome in outcomes]


def test_results_come_from_the_reference(tmp_path: Path) -> None:
    found = graded(tmp_path, INPUTS, RIGHT, NEAR, WRONG, NOTHING)
    assert found == [(4, 4), (4, 4), (1, 4), (0, 4)]  # -5e8 + 4e-5 is within a relative 1e-7
    assert graded(tmp_path, INPUTS | {"atol": 1e-4}, WRONG) == [(4, 4)]


def test_atol_counts_for_calls_too(tmp_path: Path) -> None:
    calls = {"calls": [{"args": [[1, 2]], "expected": 1.5}], "base_input": None, "plus_input": None}
    assert graded(tmp_path, INPUTS | calls, RIGHT, NEAR) == [(1, 1), (0, 1)]
    assert graded(tmp_path, INPUTS | calls | {"atol": 1e-6}, NEAR, WRONG) == [(1, 1), (0, 1)]


@pytest.mark.parametrize("compare", COMPARES)
def test_tests_that_compare_with_numpy(tmp_path: Path, compare: str) -> None:
    harness = HARNESS.replace("COMPARE", compare)
    plus = {k: v for k, v in INPUTS.items() if k not in ("base_input", "plus_input", "atol")}
    human_eval = plus | {"test": harness + CHECK}
    assert graded(tmp_path, human_eval, RIGHT, NEAR, WRONG, NOTHING) == [
        (1, 1), (1, 1), (0, 1), (0, 1)]  # fmt: skip
    mbpp = {
        "task_id": 3,
        "prompt": "Write a function to find the mean.",
        "code": RIGHT,
        "test_imports": [],
        "test_list": ["assert mean([1, 2]) == 1.5"],
        "test": harness + MODULE,
    }
    found = graded(tmp_path, mbpp, RIGHT, NEAR, WRONG, NOTHING)
    assert found == [(1, 1), (1, 1), (0, 1), (0, 1)]


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        (1.0, 1.0 + 5e-9, True),
        (1.0, 1.1, False),
        ([1.0, (2, 3)], [1.0, [2, 3]], True),
        ([1.0], [1.0, 2.0], False),
        ([1.0], 1.0, False),
        ("a", "a", False),
        (float("inf"), float("inf"), True),
        (1.0, float("inf"), False),
        (float("nan"), float("nan"), False),
    ],
)
def test_the_stand_in_for_numpy(one: Any, other: Any, verdict: bool) -> None:
    namespace: dict[str, Any] = {}
    exec(evalplus.STANDIN, namespace)
    assert namespace["np"].allclose(one, other) is verdict


BROKEN = {
    "no reference": ({"canonical_solution": None}, "canonical_solution.*what it returns"),
    "inputs of a wrong type": ({"base_input": [1]}, "base_input.*a list of lists of arguments"),
    "no inputs": ({"base_input": [], "plus_input": []}, "base_input.*at least one"),
    "a tolerance that is none": ({"atol": "1e-6"}, '"atol": found .*a number of at least 0'),
    "a negative tolerance": ({"atol": -1}, '"atol": found -1'),
    "two kinds of tests": ({"test_list": ["assert mean([1])"]}, "found test_list and base_input"),
    "more of numpy": (
        {"base_input": None, "test": "import numpy as np\nassert np.linalg.norm(mean([1]))"},
        r"\"test\": found a use of np\.linalg; expected the standard library only",
    ),
    "a reference that fails": (
        {"plus_input": [[[]]]},
        r"task HumanEval/x: the reference gives no result for mean\(\[\]\): raised Zero",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_line_is_named(tmp_path: Path, name: str) -> None:
    changes, message = BROKEN[name]
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps(INPUTS | changes))
    env = make_env(data=str(path))
    with pytest.raises(DataError, match=message) as caught:
        env.tasks("train")
    env.close()
    assert str(caught.value).startswith(f"env.data={path}")
