"""The shipped configurations of text games: solvable as they stand, and trained for real."""

from __future__ import annotations

import pytest
from running import SMALL, numbers, run

from selfdistill_cli.config import rules
from selfdistill_cli.config.compose import compose

TINY = (
    *(word for word in SMALL if not word.startswith(("env.", "method."))),
    "env.format=choices", "env.describe_tools=false", "env.difficulty.rooms=2",
    "env.difficulty.containers=1", "env.difficulty.objects=0", "env.max_steps=4",
    "rollout.max_new_tokens=4", "run.max_steps=2", "run.name=r",
)  # fmt: skip
"""What makes a step small, and fits a context of 512 tokens."""


def test_games_of_the_shipped_settings_are_solved_within_their_limits():
    settings = compose(["env=textgame"]).settings
    env = settings.env.build()
    assert settings.env.max_steps <= settings.rollout.max_turns
    assert all(env.expert(task, 0) for task in env.tasks("train")[:200])


def test_the_experiment_of_bcsd_composes_and_its_games_can_be_solved(tmp_path):
    words = ["experiment=textgame_bcsd", "policy=qwen2_5_0_5b", f"policy.path={tmp_path}"]
    settings = compose(words).settings
    rules.check(settings)
    assert settings.env.max_steps <= settings.rollout.max_turns
    env = settings.env.build()
    assert "pruned" in env.hints
    assert all(env.expert(task, 0) for task in env.tasks("validation"))
    assert settings.optim.lr == 1e-6
    assert settings.method.credit.ramp.steps == settings.run.max_steps


@pytest.mark.parametrize("method", ["bcsd", "sft"])
def test_two_steps_for_real(tmp_path, method):
    more = {
        "bcsd": ["method.group_size=4", "env.prompt_skills=builtin"],
        "sft": ["eval.every=0", "env.max_steps=8"],
    }
    run(tmp_path, "train", f"method={method}", "env=textgame", *TINY, *more[method])
    last = numbers(tmp_path / "runs/r")[-1]
    assert last["step"] == 2
    assert last.get("rollout/env_errors", 0) == 0
    if method == "sft":
        assert last["loss/cross_entropy"] > 0
    else:
        assert last["credit/pruned_gap"] != 0  # the pruned prompt is another one
