"""Guards stop a run that went wrong, and remember across a resume."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest
import torch
from small_policies import small_policy

from selfdistill_cli.core.errors import ConfigError, RunError
from selfdistill_cli.training.engine import TorchEngine, learning_rate_factor
from selfdistill_cli.training.guards import Guards
from selfdistill_cli.training.settings import GuardSettings, OptimSettings, TorchEngineSettings

SETTINGS = GuardSettings(
    on_nonfinite="stop", on_collapse="stop", collapse_window=2, collapse_fraction=0.5,
    on_reward_error="mask", reward_retries=2, reward_error_budget=9, rank_window=3, rank_floor=0.6,
)  # fmt: skip


def test_collapse_stops_with_the_remedy():
    guards = Guards(SETTINGS, pytest.fail)
    for step, reward in enumerate([0.4, 0.6, 0.5, 0.2], 1):
        guards.check_reward(step, reward)
    with pytest.raises(RunError, match=r"collapsed.*0\.150.*0\.550.*Lower optim\.lr"):
        guards.check_reward(5, 0.1)


def test_collapse_can_be_a_warning_once():
    said = []
    guards = Guards(dataclasses.replace(SETTINGS, on_collapse="warn"), said.append)
    for step, reward in enumerate([0.4, 0.6, 0.0, 0.0, 0.0], 1):
        guards.check_reward(step, reward)
    assert len(said) == 1


def test_memory_survives_a_resume():
    first, second = Guards(SETTINGS, pytest.fail), Guards(SETTINGS, pytest.fail)
    for step, reward in enumerate([0.6, 0.6, 0.4], 1):
        first.check_reward(step, reward)
    second.load_state_dict(first.state_dict())
    with pytest.raises(RunError, match="collapsed"):
        second.check_reward(4, 0.1)


def test_a_step_without_any_total_is_told_once():
    said = []
    guards = Guards(SETTINGS, said.append)
    guards.check_totals(1, {"reward/mean": 0.0, "rollout/rejected": 3.0})
    guards.check_totals(2, {"tokens/trained": 9.0})
    assert said == []
    nothing = {"reward/success": 0.5, "rollout/rejected": 8.0}
    guards.check_totals(3, nothing)
    resumed = Guards(SETTINGS, said.append)
    resumed.load_state_dict(guards.state_dict())
    resumed.check_totals(4, nothing)
    assert len(said) == 1
    assert said[0].startswith("step 3: all 8 episodes were rejected")
    assert "reward.components.recorded.unrated" in said[0]


def test_nonfinite_terms_are_named():
    guards = Guards(SETTINGS, pytest.fail)
    guards.check_loss(1, {"loss/value": 1.0})
    with pytest.raises(RunError, match="loss/value is not finite"):
        guards.check_loss(1, {"loss/value": math.nan, "loss/policy_gradient": 0.0})


def test_learning_rate_schedules():
    base = OptimSettings(
        lr=1.0, value_lr=None, beta1=0.9, beta2=0.95, epsilon=1e-8, weight_decay=0.0,
        max_grad_norm=1.0, schedule="constant", warmup_steps=4, min_lr_ratio=0.1,
    )  # fmt: skip
    assert [learning_rate_factor(base, s, 24) for s in (1, 4, 5, 24)] == [0.25, 1.0, 1.0, 1.0]
    linear = dataclasses.replace(base, schedule="linear")
    assert learning_rate_factor(linear, 14, 24) == pytest.approx(0.55)
    assert learning_rate_factor(linear, 24, 24) == pytest.approx(0.1)
    cosine = dataclasses.replace(base, schedule="cosine")
    assert learning_rate_factor(cosine, 14, 24) == pytest.approx(0.55)
    assert learning_rate_factor(cosine, 99, 24) == pytest.approx(0.1)


def test_weights_that_are_not_finite_reach_no_checkpoint():
    policy = small_policy()
    optim = OptimSettings(
        lr=1.0, value_lr=None, beta1=0.9, beta2=0.95, epsilon=1e-8, weight_decay=0.0,
        max_grad_norm=1.0, schedule="constant", warmup_steps=0, min_lr_ratio=0.1,
    )  # fmt: skip
    engine = TorchEngine(TorchEngineSettings(device="cpu"), policy, optim, 1, 0)
    assert engine.state_dict()["optimizer"]["param_groups"]
    name, weight = next(policy.named_parameters())
    weight.data[0] = math.inf
    with pytest.raises(RunError, match=rf"not finite, {re.escape(name)} among them.*are intact"):
        engine.state_dict()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_a_mistake_of_the_configuration():
    with pytest.raises(ConfigError, match=r"zero\.device: got 'cuda', but torch sees no GPU"):
        TorchEngine(TorchEngineSettings(device="cuda"), small_policy(), None, 1, 0)
