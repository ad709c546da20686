"""Can the reward rank? The measure, the warning, and the command."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from running import run

from selfdistill_cli.config.compose import compose
from selfdistill_cli.rewards.ranking import concordant_pairs
from selfdistill_cli.training.guards import Guards
from selfdistill_cli.training.settings import GuardSettings

GUARDS = GuardSettings(
    on_nonfinite="stop", on_collapse="off", collapse_window=2, collapse_fraction=0.5,
    on_reward_error="mask", reward_retries=2, reward_error_budget=9, rank_window=3, rank_floor=0.6,
)  # fmt: skip


@pytest.mark.parametrize(
    ("successes", "values", "expected"),
    [
        ([1, 0, 0], [2.0, 1.0, 3.0], (1.0, 2)),
        ([1, 0], [1.0, 1.0], (0.5, 1)),
        ([1, 1, 0, 0], [4.0, 3.0, 2.0, 1.0], (4.0, 4)),
        ([1, 0, 0], [2.0, None, 1.0], (1.0, 1)),
        ([0, 0.5, 1], [0.0, 1.0, 2.0], (3.0, 3)),
        ([1, 1], [1.0, 0.0], (0.0, 0)),
        ([], [], (0.0, 0)),
    ],
)
def test_concordance(successes, values, expected) -> None:
    assert concordant_pairs(successes, values) == expected


def step_of(concordance: float, pairs: float) -> dict[str, float]:
    return {"reward/rank_pairs": pairs, "reward/rank_concordance": concordance}


def test_a_reward_that_cannot_rank_is_told_once() -> None:
    said: list[str] = []
    guards = Guards(GUARDS, said.append)
    for step in range(1, 3):
        guards.check_ranking(step, step_of(0.5, 30))
    assert said == []
    resumed = Guards(GUARDS, said.append)
    resumed.load_state_dict(guards.state_dict())
    for step in range(3, 9):
        resumed.check_ranking(step, step_of(0.5, 30))
    assert len(said) == 1
    assert "in 0.50 of 90 pairs" in said[0]
    assert "selfdistill check reward" in said[0]


@pytest.mark.parametrize("metrics", [step_of(1.0, 30), step_of(0.0, 6), {}])
def test_a_reward_that_ranks_or_has_few_pairs_is_left_alone(metrics) -> None:
    guards = Guards(dataclasses.replace(GUARDS), pytest.fail)
    for step in range(1, 9):
        guards.check_ranking(step, metrics)


def test_guards_of_before_are_loaded() -> None:
    guards = Guards(GUARDS, pytest.fail)
    guards.load_state_dict({"recent": [], "best": 0.0, "warned": False})
    assert guards.ranked == []


FEW = ("eval.num_tasks=5", "env.sandbox.workers=1")


def test_the_command_tells_a_reward_that_ranks_from_one_that_does_not(tmp_path: Path) -> None:
    said = run(tmp_path, "check", "reward", "reward=composite", *FEW)
    assert "passed: the reward ranks (1.000" in said
    for name in ("total", "tests", "lint", "syntax", "overlong"):
        assert f"\n{name} " in said
    upside_down = "reward.components.tests.weight=-1"
    said = run(tmp_path, "check", "reward", "reward=composite", upside_down, *FEW, expect=1)
    assert "failed: the reward cannot rank: 0.000 is below guards.rank_floor=0.6" in said
    (tmp_path / "rated.jsonl").write_text('{"task": "t", "text": "x", "score": 1}\n')
    path = "reward.components.recorded.path=rated.jsonl"
    said = run(tmp_path, "check", "reward", "reward=recorded", path, *FEW, expect=1)
    assert "failed: no pair of attempts has two totals to compare" in said
    assert list(tmp_path.iterdir()) == [tmp_path / "rated.jsonl"], "a check leaves nothing behind"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["rewrd"], "there is no check 'rewrd'; did you mean 'reward'?"),
        (["reward", "reward=composit"], "did you mean 'composite'?"),
        (["reward", "--dry-run"], "other flags belong to train"),
        (["reward", "reward=recorded", "reward.components.recorded.path=no.jsonl"],
         "reward.components.recorded.path: got 'no.jsonl', nothing is there"),
    ],
)  # fmt: skip
def test_wrong_words_are_explained(tmp_path: Path, words: list[str], expected: str) -> None:
    said = run(tmp_path, "check", *words, expect=2)
    assert expected in said
    assert "Traceback" not in said


def test_made_answers_differ_from_the_reference() -> None:
    from selfdistill_cli.core.types import Task
    from selfdistill_cli.training.check_reward import answers

    program = "def f(xs):\n    return [x + {} for x in xs if x > 1]"
    tasks = [Task(id=str(i), messages=(), answer=program.format(i)) for i in range(3)]
    found = answers(tasks, 2)
    assert found[0] == tasks[2].answer
    assert len(found) == len(set(found)) == 7
    assert "x + 3" in found[2]
    assert compose(["reward=composite"]).settings.guards.rank_floor == 0.6
