"""Statistics against the golden vectors, and the properties that readers rely on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from golden_vectors import cases, check_case

from selfdistill_cli.core import statistics

Case = dict[str, Any]


@pytest.mark.parametrize("case", cases("metrics", op="pass_at_k"))
def test_pass_at_k(case: Case) -> None:
    given = case["inputs"]
    values = statistics.pass_at_k(given["n"], given["c"], given["k"])
    check_case({"per_problem": values, "mean": values.mean()}, case, "float64")


def test_pass_at_k_refuses_too_few_attempts() -> None:
    with pytest.raises(ValueError, match="at least 5 attempts per problem; found 4"):
        statistics.pass_at_k([10, 4], [1, 1], 5)


@pytest.mark.parametrize("case", cases("metrics", op="bootstrap_ci"))
def test_bootstrap_interval(case: Case) -> None:
    given = case["inputs"]
    found = statistics.bootstrap_interval(
        given["scores"],
        given["stat"],
        reps=given["reps"],
        seed=given["seed"],
        level=given["level"],
    )
    rng = np.random.Generator(np.random.PCG64(given["seed"]))
    first = statistics.resample_indices(rng, [len(row) for row in given["scores"]])
    actual = {
        "point": found.point,
        "low": found.low,
        "high": found.high,
        "first_replicate_indices": first,
    }
    check_case(actual, case, "float64")


def _one_number(given: Case) -> float:
    op = given["op"]
    if op == "iqm":
        return statistics.interquartile_mean(given["values"])
    if op == "prob_improvement":
        return statistics.probability_of_improvement(given["x"], given["y"])
    if op == "auc":
        return statistics.area_under_curve(given["x"], given["y"], given["x_max"])
    if op == "entropy":
        return statistics.entropy(given["logits"], given["temperature"])
    return statistics.distinct_n(given["sequences"], given["n"])


SINGLE_OPS = ("iqm", "prob_improvement", "auc", "entropy", "distinct_n")


@pytest.mark.parametrize("case", [case for op in SINGLE_OPS for case in cases("metrics", op=op)])
def test_one_number(case: Case) -> None:
    check_case({"value": _one_number(case["inputs"])}, case, "float64")


def test_every_metric_case_is_tested() -> None:
    tested = {"pass_at_k", "bootstrap_ci", *SINGLE_OPS}
    assert {param.values[0]["inputs"]["op"] for param in cases("metrics")} == tested


def test_area_of_one_point_is_its_height() -> None:
    assert statistics.area_under_curve([3.0], [0.25]) == 0.25
    assert statistics.area_under_curve([3.0, 5.0], [0.25, 1.0], x_max=3.0) == 0.25


def test_paired_difference_removes_the_spread_between_tasks() -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    before = rng.uniform(0, 1, size=50)
    noise = rng.normal(0, 0.01, size=50)
    found = statistics.paired_difference(
        before, before + 0.05 + noise, seed=1, reps=500, level=0.95
    )
    assert found.point == pytest.approx(0.05 + noise.mean())
    assert 0.04 < found.low < found.point < found.high < 0.06


def test_paired_difference_averages_attempts_and_is_reproducible() -> None:
    before, after = [[0, 0], [1, 0], [0, 1]], [[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]]
    found = statistics.paired_difference(before, after, seed=3, reps=300, level=0.9)
    means = statistics.paired_difference([0, 0.5, 0.5], [1, 0.5, 0.75], seed=3, reps=300, level=0.9)
    assert found == means
    assert found.point == pytest.approx(1.25 / 3)
    assert 0 <= found.low <= found.point <= found.high <= 1


def test_paired_difference_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.Generator(np.random.PCG64(7))
    hits = 0
    for seed in range(200):
        before, after = rng.random(60) < 0.4, rng.random(60) < 0.6
        found = statistics.paired_difference(before, after, seed=seed, reps=200, level=0.9)
        hits += found.low <= 0.2 <= found.high
    assert 0.83 < hits / 200 < 0.96


def test_paired_difference_needs_the_same_panel() -> None:
    with pytest.raises(ValueError, match="before has 2, after 3"):
        statistics.paired_difference([0, 1], [0, 1, 1], seed=0, reps=10, level=0.95)
    with pytest.raises(ValueError, match="no tasks"):
        statistics.paired_difference([], [], seed=0, reps=10, level=0.95)


def test_success_interval_is_wilsons() -> None:
    # 8 of 10 at 95%: the worked value of the score interval, (0.4902, 0.9433).
    found = statistics.success_interval([1] * 8 + [0] * 2, level=0.95)
    assert found.point == pytest.approx(0.8)
    assert found.low == pytest.approx(0.4902, abs=1e-4)
    assert found.high == pytest.approx(0.9433, abs=1e-4)


def test_success_interval_is_not_empty_at_the_ends() -> None:
    none = statistics.success_interval([0.0] * 20, level=0.95)
    every = statistics.success_interval([[1, 1]] * 20, level=0.95)
    assert none.low == 0.0
    assert 0.1 < none.high < 0.2
    assert every.high == 1.0
    assert every.low == pytest.approx(1 - none.high)


def test_crossed_interval_varies_tasks_and_whole_runs() -> None:
    tasks_differ = np.array([[0.0, 1.0], [0.0, 1.0]])
    runs_differ = tasks_differ.T
    for scores in (tasks_differ, runs_differ):
        found = statistics.crossed_interval(scores, reps=500, seed=0, level=0.95)
        # Two equal draws of two have chance 1/4 at each end.
        assert (found.low, found.point, found.high) == (0.0, 0.5, 1.0)
    alone = statistics.crossed_interval(np.array([[0.25, 0.25]]), reps=50, seed=0, level=0.95)
    assert (alone.low, alone.point, alone.high) == (0.25, 0.25, 0.25)


def test_crossed_difference_pairs_tasks_and_draws_runs_within_each_side() -> None:
    before = np.tile(np.linspace(0, 0.8, 9), (3, 1))
    paired = statistics.crossed_difference(before, before + 0.1, reps=300, seed=0, level=0.95)
    assert paired.point == pytest.approx(0.1)
    assert paired.low == pytest.approx(0.1)
    assert paired.high == pytest.approx(0.1)
    one_run_is_better = np.array([[0.0] * 4, [1.0] * 4])
    found = statistics.crossed_difference(
        np.zeros((5, 4)), one_run_is_better, reps=500, seed=0, level=0.95
    )
    assert (found.low, found.point, found.high) == (0.0, 0.5, 1.0)


def test_crossed_difference_covers_the_truth_when_seeds_differ() -> None:
    rng = np.random.Generator(np.random.PCG64(11))
    hits = 0
    for trial in range(150):
        chances = rng.uniform(0.2, 0.8, size=60)
        sides = [chances + rng.normal(0, 0.03, (4, 1)) + shift for shift in (0.0, 0.1)]
        before, after = (rng.binomial(2, np.clip(side, 0, 1)) / 2 for side in sides)
        found = statistics.crossed_difference(before, after, reps=200, seed=trial, level=0.9)
        hits += found.low <= 0.1 <= found.high
    assert hits / 150 > 0.87


def test_crossed_difference_needs_the_same_tasks() -> None:
    with pytest.raises(ValueError, match="before has 2, after 3"):
        statistics.crossed_difference(np.zeros((1, 2)), np.zeros((1, 3)), reps=9, seed=0, level=0.9)
