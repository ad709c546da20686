"""The numbers of a comparison, against values worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from written_runs import TARGETS, write_evaluation, write_run

from selfdistill_cli.analysis.comparison import Comparison, compare
from selfdistill_cli.analysis.grouping import group_runs, protocol_differences
from selfdistill_cli.analysis.run_record import read_run
from selfdistill_cli.core.errors import UserError

FLAT = {0: [[0], [0]], 2: [[1], [0]]}
"""Two tasks, one attempt: from 0 to one half in two steps."""


def compared(*paths: Path, baseline: str | None = None) -> Comparison:
    return compare([read_run(path) for path in paths], baseline, [])


def two_methods(root: Path) -> list[Path]:
    """Eight episodes a step, two steps, two tasks with two attempts each."""
    return [
        write_run(root, "gear", 0, {0: [[0, 0], [1, 0]], 1: [[1, 0], [1, 1]], 2: [[1, 1], [1, 1]]}),
        write_run(root, "gear", 1, {0: [[0, 0], [0, 0]], 1: [[0, 0], [1, 1]], 2: [[1, 0], [1, 1]]}),
        write_run(root, "grpo", 0, {0: [[0, 0], [1, 0]], 2: [[0, 0], [1, 1]]}),
    ]


def test_every_number_of_a_small_case(tmp_path: Path) -> None:
    found = compared(*two_methods(tmp_path))
    gear, grpo = found.results
    assert (gear.label, gear.seeds, grpo.label, grpo.seeds) == ("gear", (0, 1), "grpo", (0,))
    # Seed 0: tasks 1 and 1; seed 1: tasks 1/2 and 1. Starts: 0, 1/2 and 0, 0.
    assert gear.start.point == pytest.approx(0.125)
    assert gear.end.point == pytest.approx(0.875)
    assert gear.gain.point == pytest.approx(0.75)
    assert gear.interquartile_mean == pytest.approx(0.875)
    # Means at 0, 8 and 16 episodes: 1/8, 5/8, 7/8; trapezoids over 16 episodes.
    assert found.budget == 16
    assert gear.area is not None
    assert gear.area.point == pytest.approx((0.125 / 2 + 0.625 + 0.875 / 2) / 2)
    # grpo was not evaluated in the middle: from 1/4 to 1/2 in a straight line.
    assert grpo.area is not None
    assert grpo.area.point == pytest.approx(0.375)
    assert found.baseline == "grpo"
    assert grpo.against is None
    assert gear.against is not None
    assert gear.against.difference.point == pytest.approx(0.375)
    # Task 0: 1 and 1/2 both beat 0; task 1: two ties.
    assert gear.against.probability_of_improvement == pytest.approx(0.75)
    assert gear.response_length == 12.0
    # Laps are 0.1 s at step 1 and 0.2 s at step 2, in both runs.
    assert gear.seconds == pytest.approx({"act": 0.15, "learn": 0.15, "step": 0.15})


def test_the_interval_of_a_case_with_four_equally_likely_draws(tmp_path: Path) -> None:
    # One run, tasks 0 and 1: a replicate's mean is 0, 1/2 or 1 with chances 1/4, 1/2, 1/4.
    end = compared(write_run(tmp_path, "gear", 0, FLAT)).results[0].end
    assert (end.low, end.point, end.high) == (0.0, 0.5, 1.0)


def test_the_curve_joins_runs_that_were_measured_at_other_steps(tmp_path: Path) -> None:
    one = write_run(tmp_path, "gear", 0, {0: [[0]], 2: [[1]]})
    other = write_run(tmp_path, "gear", 1, {0: [[0]], 1: [[1]], 2: [[1]]})
    curve = compared(one, other).results[0].curve
    assert curve.episodes == (0.0, 8.0, 16.0)
    # At 8 episodes: 1/2 between the first run's ends, 1 measured in the second.
    assert curve.success == pytest.approx((0.0, 0.75, 1.0))
    assert curve.low == pytest.approx((0.0, 0.5, 1.0))
    assert curve.high == pytest.approx((0.0, 1.0, 1.0))


def test_areas_end_at_the_shortest_budget(tmp_path: Path) -> None:
    long = write_run(tmp_path, "gear", 0, {0: [[0]], 1: [[0.5]], 2: [[1]]})
    short = write_run(tmp_path, "ppo", 0, {0: [[0]], 1: [[1]]}, **{"run.max_steps": 1})
    found = compared(long, short)
    areas = [result.area.point for result in found.results if result.area]
    assert found.budget == 8
    assert areas == pytest.approx([0.25, 0.5])
    assert "budgets differ: 8, 16 episodes; areas end at 8" in found.notes
    assert "protocol differs: run.max_steps = 2 (gear), 1 (ppo)" in found.notes


def test_demonstrations_play_no_episodes(tmp_path: Path) -> None:
    sft = write_run(tmp_path, "sft", 0, FLAT, played=False)
    alone = compared(sft)
    assert alone.budget is None
    assert alone.results[0].area is None
    assert alone.results[0].curve.episodes == (0.0,)
    assert alone.results[0].curve.success == (0.5,)
    both = compared(sft, write_run(tmp_path, "gear", 0, FLAT))
    assert both.budget == 16
    assert [result.area is None for result in both.results] == [True, False]


def test_divergences_are_the_last_ones_and_only_where_they_were_logged(tmp_path: Path) -> None:
    one = write_run(tmp_path, "gear", 0, FLAT, metrics={"policy/approx_kl": 0.1})
    other = write_run(tmp_path, "opsd", 0, FLAT, metrics={"teacher/kl": 0.5})
    gear, opsd = compared(one, other).results
    assert gear.last_metrics == pytest.approx({"policy/approx_kl": 0.2})
    assert opsd.last_metrics == pytest.approx({"teacher/kl": 1.0})


def test_a_null_is_no_value(tmp_path: Path) -> None:
    path = write_run(tmp_path, "gear", 0, FLAT, metrics={"teacher/kl": float("nan")})
    assert compared(path).results[0].last_metrics == {}


def test_runs_of_one_method_with_other_settings_are_other_groups(tmp_path: Path) -> None:
    value_gap = {"_target_": f"{TARGETS}.ValueGapSettings", "temperature": 0.5}
    paths = [
        write_run(tmp_path, "gear", 0, FLAT, name="a"),
        write_run(tmp_path, "gear", 1, FLAT, name="b", **{"run.num_threads": 4}),
        write_run(tmp_path, "gear", 0, FLAT, name="c", **{"optim.lr": 0.0003}),
        write_run(tmp_path, "gear", 0, FLAT, name="d", **{"method.credit": value_gap}),
        write_run(tmp_path, "grpo", 0, FLAT, name="e", **{"tracker._target_": "wandb"}),
    ]
    groups = group_runs([read_run(path) for path in paths])
    assert {group.label: [run.name for run in group.runs] for group in groups} == {
        "gear lr=0.00015 credit=Uniform": ["a", "b"],
        "gear lr=0.0003 credit=Uniform": ["c"],
        "gear lr=0.00015 credit=ValueGap": ["d"],
        "grpo": ["e"],
    }
    assert protocol_differences(groups) == [
        "protocol differs: optim.lr = 0.00015 (gear lr=0.00015 credit=Uniform, "
        "gear lr=0.00015 credit=ValueGap, grpo), 0.0003 (gear lr=0.0003 credit=Uniform)"
    ]


def test_settings_of_the_method_are_not_the_protocol_but_its_group_size_is(tmp_path: Path) -> None:
    gear = write_run(tmp_path, "gear", 0, FLAT, **{"method.old_logprobs": "recomputed"})
    ppo = write_run(tmp_path, "ppo", 0, FLAT, **{"method.group_size": 1})
    groups = group_runs([read_run(gear), read_run(ppo)])
    assert protocol_differences(groups) == [
        "protocol differs: method.group_size = 4 (gear), 1 (ppo)"
    ]


@pytest.mark.parametrize(
    ("changes", "tasks", "said"),
    [
        ({}, ["other", "tasks"], "fingerprint"),
        ({"eval.temperature": 0.0}, None, "temperature 0.0"),
        ({"eval.hints": ["answer"]}, None, r"hints \[answer\]"),
    ],
)
def test_other_panels_are_refused(
    tmp_path: Path, changes: dict[str, object], tasks: list[str] | None, said: str
) -> None:
    one = write_run(tmp_path, "gear", 0, FLAT)
    other = write_run(tmp_path, "grpo", 0, FLAT, tasks=tasks, **changes)
    with pytest.raises(UserError, match=f"(?s)different panels.*{said}.*grpo_0"):
        compared(one, other)


def test_other_numbers_of_attempts_are_refused(tmp_path: Path) -> None:
    one = write_run(tmp_path, "gear", 0, FLAT)
    other = write_run(tmp_path, "grpo", 0, {0: [[0, 1], [0, 1]], 2: [[1, 1], [0, 1]]})
    with pytest.raises(UserError, match="2 attempts"):
        compared(one, other)


def test_the_baseline_is_chosen_by_name_and_never_guessed(tmp_path: Path) -> None:
    gear = write_run(tmp_path, "gear", 0, FLAT)
    ppo = write_run(tmp_path, "ppo", 0, FLAT)
    assert compared(gear, ppo).baseline is None
    assert compared(gear, ppo, baseline="ppo").baseline == "ppo"
    with pytest.raises(UserError, match="no method 'gaer'; did you mean 'gear'"):
        compared(gear, ppo, baseline="gaer")
    slow = write_run(tmp_path, "grpo", 0, FLAT, name="slow", **{"optim.lr": 0.0001})
    fast = write_run(tmp_path, "grpo", 0, FLAT, name="fast", **{"optim.lr": 0.001})
    doubtful = compared(gear, slow, fast)
    assert doubtful.baseline is None
    assert any(note.startswith("no baseline: several groups") for note in doubtful.notes)
    assert compared(gear, slow, fast, baseline="grpo lr=0.001").baseline == "grpo lr=0.001"
    with pytest.raises(UserError, match="several groups are called grpo"):
        compared(gear, slow, fast, baseline="grpo")


def test_evaluations_by_hand_and_of_steps_without_a_line_do_not_count(tmp_path: Path) -> None:
    path = write_run(tmp_path, "gear", 0, FLAT)
    write_evaluation(path, 2, [[1], [1]], name="_test_2x1")
    write_evaluation(path, 3, [[1], [1]])
    assert [e.step for e in read_run(path).evaluations] == [0, 2]
    assert compared(path).results[0].end.point == 0.5


def test_a_difference_that_is_there_is_found_and_one_that_is_not_is_not(tmp_path: Path) -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    chances = rng.uniform(0.1, 0.7, size=100)

    def rows(shift: float) -> list[list[float]]:
        return [rng.binomial(1, p + shift, size=2).tolist() for p in chances]

    shifts = {"gear": 0.25, "ppo": 0.0, "grpo": 0.0}
    paths = [
        write_run(tmp_path, method, seed, {0: rows(0), 2: rows(shift)})
        for method, shift in shifts.items()
        for seed in range(3)
    ]
    gear, ppo, _ = (result.against for result in compared(*paths).results)
    assert gear is not None
    assert ppo is not None
    assert 0.1 < gear.difference.low < 0.25 < gear.difference.high < 0.4
    assert ppo.difference.low < 0 < ppo.difference.high
    assert gear.probability_of_improvement > 0.6 > ppo.probability_of_improvement > 0.4
