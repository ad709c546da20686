"""Recipes on the search environment: rules, the published settings, and real runs of two steps."""

from __future__ import annotations

import pytest
from running import numbers, run

from selfdistill_cli.config import rules
from selfdistill_cli.config.compose import compose

TINY = (
    "tracker=none", "run.name=r", "run.num_threads=1", "eval.every=0",
    "env=search", "env.index=index", "env.hops=[2]", "env.world_size=12", "env.max_steps=5",
    "rollout.max_turns=5", "rollout.max_new_tokens=3", "batch.tasks_per_step=2",
)  # fmt: skip


def violations(*words):
    return rules.violations(compose(["env=search", *words]).settings)


@pytest.mark.parametrize("method", ["grpo", "gear", "sspo", "step_kd", "sft", "rlsd", "sdpo"])
def test_methods_compose_with_the_environment(method):
    assert violations(f"method={method}") == []


def test_pruning_needs_skills_in_the_prompt():
    [message] = violations("method=bcsd")
    assert message.startswith("method.views.pruned.hints: the environment cannot give the hint")
    assert message.endswith(
        "set env.prompt_skills=builtin, or a file of skills, and they can be pruned"
    )
    assert violations("method=bcsd", "env.prompt_skills=builtin") == []


def test_the_published_settings_of_sspo(tmp_path):
    found = compose(["experiment=search_sspo", f"policy.path={tmp_path}"]).settings
    assert rules.violations(found) == []
    assert (found.optim.lr, found.batch.tasks_per_step, found.method.group_size) == (1e-6, 64, 8)
    assert (found.run.max_steps, found.rollout.max_turns) == (100, 100)
    assert (found.method.credit.step_unit, found.method.sync.every) == ("turn", 50)
    assert found.rollout.max_context_tokens == 131072
    assert found.reward.weights == {"success": 1.0, "format": 0.2}
    assert found.teacher.hints == ["evidence", "own_wrong_answer"]


def test_sspo_weights_turns(tmp_path):
    words = ("method=sspo", "method.credit.step_unit=turn", "method.group_size=2",
             "method.credit.scored=all")  # fmt: skip
    run(tmp_path, "train", *TINY, *words, "run.max_steps=1")
    last = numbers(tmp_path / "runs/r")[-1]
    assert last["credit/steps_per_sample"] == 5
    assert last["teacher/informed_fraction"] == 1.0


def test_step_kd_teaches_turns(tmp_path):
    words = ("method=step_kd", "method.terms.distill.step_unit=turn", "method.group_size=2")
    run(tmp_path, "train", *TINY, *words, "run.max_steps=1")
    last = numbers(tmp_path / "runs/r")[-1]
    assert last["teacher/taught_fraction"] == 1.0
    assert last["rollout/env_errors"] == 0


def test_experts_teach_in_supervised_learning(tmp_path):
    run(tmp_path, "train", *TINY, "method=sft", "env.max_steps=12", "run.max_steps=2")
    first, last = (numbers(tmp_path / "runs/r")[i] for i in (0, -1))
    assert last["loss/cross_entropy"] < first["loss/cross_entropy"]
