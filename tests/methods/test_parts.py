"""The parts of a method: identities, degenerate cases, state."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from making import make_group

from selfdistill_cli.methods.advantage import GeneralizedAdvantage, GroupAdvantage, is_flat
from selfdistill_cli.methods.coefficient_settings import LinearSettings
from selfdistill_cli.methods.coefficients import coefficient
from selfdistill_cli.methods.credit import ValueGap
from selfdistill_cli.methods.credit_settings import ValueGapSettings
from selfdistill_cli.methods.settings import (
    GeneralizedAdvantageSettings,
    GroupAdvantageSettings,
)
from selfdistill_cli.methods.source import in_epochs

GEAR = ValueGapSettings(
    form="exp_sign", temperature=0.25, exp_clamp=5.0, ratio_delta=0.01, clip_low=0.5,
    clip_high=2.0, normalize=True, standardize=False, ramp=1.0, v_orig="group_mean",
    winner_fraction=0.25, targets="return_to_go", gamma=0.9, fit_epochs=30, fit_lr=0.05,
    fit_weight_decay=0.0, head_decay=0.0, warmup_fits=1,
)  # fmt: skip
GROUPS = [make_group("a", [1.0, 0.0, 0.5, 0.0]), make_group("bb", [0.0, None, 1.0, 1.0])]
ZSCORE = GroupAdvantage(GroupAdvantageSettings(mode="grpo", epsilon=1e-4, rank_by="reward"))


def advantages(groups):
    return np.concatenate([s.advantages for g in groups for s in g.samples])


def test_rejected_trajectories_leave_the_baseline():
    judged = ZSCORE.assign(GROUPS)
    rewards = np.array([0.0, 1.0, 1.0])
    expected = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)
    first = [float(s.advantages[-1]) for s in judged[1].samples]
    np.testing.assert_allclose(first, expected, rtol=1e-6)
    assert all((s.advantages[:3] == 0).all() for s in judged[1].samples)


def test_flat_groups_have_advantage_exactly_zero():
    group = make_group("flat", [0.1, 0.1, 0.1])
    assert is_flat(group)
    assert (advantages(ZSCORE.assign([group])) == 0).all()
    assert not is_flat(GROUPS[0])


def test_ramp_zero_is_grpo_bit_for_bit():
    plain = ZSCORE.assign(GROUPS)
    gear = ValueGap(dataclasses.replace(GEAR, ramp=0.0))
    gear.after_step(plain, 1)
    changed, _ = gear.reweight(plain, 2)
    assert (advantages(changed) == advantages(plain)).all()


def test_weights_come_from_the_head_before_this_batch():
    plain = ZSCORE.assign(GROUPS)
    gear = ValueGap(GEAR)
    first, metrics = gear.reweight(plain, 1)
    assert (advantages(first) == advantages(plain)).all()
    assert metrics["credit/within_traj_std"] == 0.0
    gear.after_step(plain, 1)
    before, metrics = gear.reweight(plain, 2)
    assert (advantages(before) != advantages(plain)).any()
    assert metrics["credit/within_traj_std"] > 0.05
    gear.after_step(plain, 2)
    after, _ = gear.reweight(plain, 2)
    assert (advantages(after) != advantages(before)).any()


def test_weights_are_normalised_and_keep_the_sign():
    plain = ZSCORE.assign(GROUPS)
    gear = ValueGap(GEAR)
    gear.after_step(plain, 1)
    changed, metrics = gear.reweight(plain, 2)
    assert metrics["credit/weight_mean"] == pytest.approx(1.0, abs=1e-5)
    assert (np.sign(advantages(changed)) == np.sign(advantages(plain))).all()


def test_head_converges_to_least_squares_on_the_winners_alone():
    plain = ZSCORE.assign(GROUPS)
    gear = ValueGap(dataclasses.replace(GEAR, fit_epochs=1500))
    metrics = gear.after_step(plain, 1)
    assert metrics["credit/num_winners"] == 2.0
    winners = [plain[0].samples[0], plain[1].samples[1]]  # ties go to the lower index
    inputs = np.concatenate([s.hidden[s.action_mask] for s in winners])
    inputs = np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1)
    lengths = [int(s.action_mask.sum()) for s in winners]
    targets = np.concatenate([0.9 ** np.arange(n - 1, -1, -1) for n in lengths])
    solution, *_ = np.linalg.lstsq(inputs, targets, rcond=None)
    best = np.square(inputs @ solution - targets).mean()
    assert metrics["credit/value_head_mse"] == pytest.approx(best, rel=0.02, abs=1e-6)


def test_credit_state_continues_exactly():
    plain = ZSCORE.assign(GROUPS)
    straight, resumed = ValueGap(GEAR), ValueGap(GEAR)
    straight.after_step(plain, 1)
    resumed.load_state_dict(straight.state_dict())
    for part in (straight, resumed):
        part.after_step(plain, 2)
    a, b = (advantages(part.reweight(plain, 3)[0]) for part in (straight, resumed))
    assert (a == b).all()


def test_no_winner_leaves_the_head_alone():
    flat = ZSCORE.assign([make_group("flat", [0.0, 0.0])])
    gear = ValueGap(GEAR)
    assert gear.after_step(flat, 1) == {"credit/num_winners": 0.0}
    assert gear.head.num_fits == 0


def test_generalized_advantage_places_the_reward_on_the_last_token():
    settings = GeneralizedAdvantageSettings(gamma=1.0, lam=1.0, whiten=False)
    judged = GeneralizedAdvantage(settings).assign(GROUPS)
    for group in judged:
        totals = {t.sibling: s.total for t, s in zip(group.trajectories, group.scores, strict=True)}
        for sample in group.samples:
            assert sample.rewards[-1] == totals[sample.sibling]
            assert (sample.rewards[:-1] == 0).all()
            expected = totals[sample.sibling] - sample.values[sample.action_mask]
            got = sample.advantages[sample.action_mask]
            np.testing.assert_allclose(got, expected, atol=1e-6)


def test_whitened_advantages_have_mean_zero_and_deviation_one():
    settings = GeneralizedAdvantageSettings(gamma=1.0, lam=0.95, whiten=True)
    judged = GeneralizedAdvantage(settings).assign(GROUPS)
    active = np.concatenate([s.advantages[s.action_mask] for g in judged for s in g.samples])
    assert abs(active.mean()) < 1e-5
    assert active.std(ddof=1) == pytest.approx(1.0, abs=1e-4)


def test_linear_coefficient_meets_both_ends():
    ramp = coefficient(LinearSettings(start=0.0, end=1.0, steps=11))
    assert [ramp(1), ramp(6), ramp(11), ramp(99)] == [0.0, 0.5, 1.0, 1.0]
    assert coefficient(0.25)(7) == 0.25


def test_epochs_visit_every_task_once_and_depend_on_position_only():
    tasks = [make_group(f"t{i}", [0.0]).task for i in range(5)]
    whole = [t.id for t in in_epochs(tasks, 1, "play", 0, 10)]
    assert sorted(whole[:5]) == sorted(whole[5:]) == [f"t{i}" for i in range(5)]
    assert whole[3:7] == [t.id for t in in_epochs(tasks, 1, "play", 3, 4)]
    assert whole[:5] != [t.id for t in in_epochs(tasks, 2, "play", 0, 5)]


def test_used_head_is_a_moving_average():
    plain = ZSCORE.assign(GROUPS)
    gear = ValueGap(dataclasses.replace(GEAR, head_decay=0.5))
    gear.after_step(plain, 1)
    first = {name: value.clone() for name, value in gear.head.used.items()}
    gear.after_step(plain, 2)
    for name, value in gear.head.head.named_parameters():
        expected = 0.5 * first[name] + 0.5 * value.detach()
        torch.testing.assert_close(gear.head.used[name], expected)
