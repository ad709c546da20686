"""Properties of the losses that no single vector shows."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from selfdistill_cli.losses import divergence
from selfdistill_cli.losses.advantages import generalized_advantage, group_advantage
from selfdistill_cli.losses.policy_gradient import (
    LOSS_TYPES,
    reduce_total,
    reduction_count,
    surrogate,
)
from selfdistill_cli.losses.value import value_loss
from selfdistill_cli.losses.value_weights import (
    apply_weights,
    head_loss,
    value_targets,
    value_weights,
    winners,
    within_trajectory_std,
)

few = settings(max_examples=15, deadline=None, derandomize=True)
seeds = st.integers(0, 10_000)


def _batch(seed: int, rows: int = 6, length: int = 5) -> tuple[torch.Tensor, ...]:
    """New and old log-probabilities, advantages and mask; nan where inactive."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, length, generator=generator) < 0.6
    draws = torch.randn(3, rows, length, generator=generator, dtype=torch.float64)
    nan = torch.full_like(draws[0], math.nan)
    new, old = (torch.where(mask, -x.abs(), nan) for x in draws[:2])
    return new, old, torch.where(mask, draws[2], nan), mask


SETTINGS: dict[str, Any] = {"eps_low": 0.2, "eps_high": 0.3, "dual_clip": 3.0, "ratio_max": 2.0}


def _total_and_gradient(
    batch: tuple[torch.Tensor, ...], loss_type: str, pieces: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and gradient, the batch being cut into micro-batches of rows."""
    new = batch[0].clone().requires_grad_()
    kind, reduction = LOSS_TYPES[loss_type]
    total, count = torch.zeros((), dtype=new.dtype), 0.0
    parts = zip(*(x.tensor_split(pieces) for x in (new, *batch[1:])), strict=True)
    for logprobs, old, advantages, mask in parts:
        out = surrogate(logprobs, old, advantages, mask, kind=kind, **SETTINGS)
        total = total + reduce_total(out.per_token, mask, reduction, 7)
        count += reduction_count(mask, reduction, 7)
    loss = total / max(1.0, count)
    return loss, torch.autograd.grad(loss, new)[0]


@few
@given(seeds, st.sampled_from(sorted(LOSS_TYPES)), st.integers(2, 8))
def test_micro_batches_add_up_to_the_batch(seed: int, loss_type: str, pieces: int) -> None:
    whole = _total_and_gradient(_batch(seed), loss_type, 1)
    split = _total_and_gradient(_batch(seed), loss_type, pieces)
    torch.testing.assert_close(split, whole)
    assert whole[1].isfinite().all()


@few
@given(seeds)
def test_diagnostics_of_micro_batches_add_up(seed: int) -> None:
    batch = _batch(seed)
    names = ("clip_high", "clip_low", "dual_clip", "kl_k1", "kl_k3", "active")

    def sums(*parts: torch.Tensor) -> list[float]:
        out = surrogate(*parts, kind="ppo_clip", **SETTINGS)
        return [getattr(out, name) for name in names]

    pieces = [sums(*(x[i : i + 2] for x in batch)) for i in (0, 2, 4)]
    assert sums(*batch) == pytest.approx([sum(column) for column in zip(*pieces, strict=True)])


def test_far_ratios_have_no_gradient_and_no_overflow() -> None:
    new = torch.tensor([[0.0, -100.0, -1.0]], requires_grad=True)
    old = torch.tensor([[-100.0, 0.0, -1.0]])
    mask = torch.ones(1, 3, dtype=torch.bool)
    out = surrogate(new, old, torch.tensor([[-1.0, 1.0, 1.0]]), mask, kind="ppo_clip",
                    eps_low=0.2, eps_high=0.2, dual_clip=None, ratio_max=None)  # fmt: skip
    (gradient,) = torch.autograd.grad(out.per_token.sum(), new)
    assert gradient.tolist() == [[0.0, 0.0, -1.0]]
    assert out.ratio[0, 0] == pytest.approx(math.exp(20), rel=1e-5)


def test_dual_clip_bounds_the_penalty_and_leaves_gains_alone() -> None:
    mask = torch.ones(1, 3, dtype=torch.bool)
    new, gain = torch.tensor([[0.0, 0.0, -2.0]]), torch.tensor([[-1.0, 1.0, -1.0]])
    out = surrogate(new, torch.full((1, 3), -2.0), gain, mask, kind="ppo_clip", **SETTINGS)
    torch.testing.assert_close(out.per_token, torch.tensor([[3.0, -1.3, 1.0]]))
    assert (out.dual_clip, out.clip_high, out.clip_low) == (1.0, 1.0, 0.0)


def test_k3_of_a_far_token_is_bounded_and_flat() -> None:
    student = torch.tensor([[-90.0, 0.0]], dtype=torch.float64, requires_grad=True)
    other = torch.tensor([[0.0, -90.0]], dtype=torch.float64)
    estimate = divergence.k3(student, other, torch.ones(1, 2))
    assert estimate.tolist() == [[pytest.approx(math.exp(20) - 21), pytest.approx(19.0)]]
    assert not torch.autograd.grad(estimate.sum(), student)[0].any()


@pytest.mark.parametrize(("fraction", "expected"), [(0.07, 7), (0.071, 8), (0.001, 1), (1.0, 100)])
def test_winners_are_counted_without_rounding_errors(fraction: float, expected: int) -> None:
    won = winners(torch.arange(100.0), torch.zeros(100), fraction)
    assert won.nonzero().flatten().tolist() == list(range(100 - expected, 100))


def test_ties_among_winners_go_to_the_lower_index() -> None:
    rewards = torch.ones(300)
    rewards[0] = 0.0
    won = winners(rewards, torch.zeros(300), 0.5)
    assert won.nonzero().flatten().tolist() == list(range(1, 151))


@few
@given(seeds, st.sampled_from(["exp", "exp_sign", "sigmoid", "ratio"]))
def test_weights(seed: int, form: Any) -> None:
    distill, orig, advantages, mask = _batch(seed)
    options: dict[str, Any] = {"form": form, "temperature": 0.7, "exp_clamp": 5.0,
                               "ratio_delta": 0.1, "clip_lo": None, "clip_hi": None}  # fmt: skip
    weights = value_weights(distill, orig, advantages, mask, **options, normalize=True)
    assert (weights[~mask] == 1).all()
    means = [row[chosen].mean() for row, chosen in zip(weights, mask, strict=True) if chosen.any()]
    torch.testing.assert_close(torch.stack(means), torch.ones(len(means), dtype=weights.dtype))
    clean = torch.where(mask, advantages, 0.0)
    assert apply_weights(clean, weights, 0.0).equal(clean)
    assert apply_weights(clean, torch.full_like(clean, math.nan), 0.0).equal(clean)
    torch.testing.assert_close(apply_weights(clean, weights, 1.0), clean * weights)
    neutral = value_weights(orig, orig, advantages, mask, **options, normalize=False)
    assert (neutral == 1).all()
    assert within_trajectory_std(neutral, mask) == 0.0


@few
@given(seeds)
def test_return_to_go_without_discount_is_constant(seed: int) -> None:
    mask = _batch(seed)[3]
    rewards = torch.linspace(0, 1, len(mask), dtype=torch.float64)
    constant, everywhere = value_targets(rewards, mask, "return_to_go", 1.0)
    all_tokens, _ = value_targets(rewards, mask, "all_tokens", 0.5)
    torch.testing.assert_close(constant, all_tokens)
    assert everywhere.equal(mask)
    falling, _ = value_targets(rewards, mask, "return_to_go", 0.0)
    assert (falling != 0).sum(-1).max() <= 1


@few
@given(seeds, st.floats(0.5, 1.0))
def test_advantages_with_exact_values_are_zero(seed: int, gamma: float) -> None:
    """With values equal to the discounted returns no step is a surprise."""
    mask = _batch(seed)[3]
    rewards = torch.linspace(-1, 1, len(mask), dtype=torch.float64)
    values, _ = value_targets(rewards, mask, "return_to_go", gamma)
    last = mask & (mask.flip(-1).cumsum(-1).flip(-1) == 1)
    placed = torch.where(last, rewards[:, None], math.nan)
    placed = torch.where(mask & ~last, 0.0, placed)
    none = torch.zeros_like(rewards)
    advantages, returns = generalized_advantage(placed, values, mask, gamma, 0.9, none.bool(), none)
    torch.testing.assert_close(advantages, torch.zeros_like(advantages))
    torch.testing.assert_close(returns, values)


@few
@given(seeds, st.sampled_from(["grpo", "dr_grpo", "rank"]), st.floats(0.5, 4), st.floats(-3, 3))
def test_group_advantages(seed: int, mode: Any, scale: float, shift: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.randint(0, 4, (12,), generator=generator).double()
    ids = torch.randint(0, 3, (12,), generator=generator)
    advantages, flat = group_advantage(rewards, ids, mode, 1e-4)
    for group in ids.unique():
        assert float(advantages[ids == group].sum()) == pytest.approx(0, abs=1e-9)
    moved, _ = group_advantage(rewards * scale + shift, ids, mode, 1e-4 * scale)
    expected = advantages * scale if mode == "dr_grpo" else advantages
    torch.testing.assert_close(moved, expected)
    assert 0 <= flat <= 1


def test_no_trajectories_have_no_flat_groups() -> None:
    advantages, flat = group_advantage(torch.zeros(0), torch.zeros(0).long(), "grpo", 1e-4)
    assert (advantages.numel(), flat) == (0, 0.0)


def test_value_loss_clips_the_move_not_the_value() -> None:
    values = torch.tensor([[2.0, 0.1, math.nan]], requires_grad=True)
    old, returns = torch.zeros(1, 3), torch.tensor([[3.0, 1.0, math.nan]])
    mask = torch.tensor([[True, True, False]])
    plain = value_loss(values, old, returns, mask, None)
    clipped = value_loss(values, old, returns, mask, 0.5)
    assert plain.tolist() == [[0.5, pytest.approx(0.405), 0.0]]
    assert clipped.tolist() == [[3.125, pytest.approx(0.405), 0.0]]
    (gradient,) = torch.autograd.grad(clipped.sum(), values)
    assert gradient.tolist() == [[0.0, pytest.approx(-0.9), 0.0]]


@pytest.mark.parametrize("empty", ["no_row", "no_active_token"])
def test_empty_batches_give_a_connected_zero(empty: str) -> None:
    shape = (0, 4) if empty == "no_row" else (2, 4)
    x = torch.full(shape, math.nan, requires_grad=True)
    mask, garbage = torch.zeros(shape, dtype=torch.bool), torch.full(shape, math.inf)
    losses = [getattr(divergence, name)(x, garbage, mask).sum() for name in ("k1", "k2", "k3")]
    losses.append(value_loss(x, garbage, garbage, mask, 0.2).sum())
    losses.append(head_loss(x, garbage, mask, torch.ones(shape[0], dtype=torch.bool)))
    for kind, reduction in LOSS_TYPES.values():
        out = surrogate(x, garbage, garbage, mask, kind=kind, **SETTINGS)
        losses.append(reduce_total(out.per_token, mask, reduction, 4))
    for loss in losses:
        assert float(loss.detach()) == 0.0
        assert not torch.autograd.grad(loss, x)[0].any()


def test_minimising_the_divergence_lowers_it() -> None:
    """One step on +KL must lower it; k2's gradient is that of the reverse KL."""
    generator = torch.Generator().manual_seed(0)
    student = torch.randn(6, generator=generator, dtype=torch.float64, requires_grad=True)
    teacher = torch.log_softmax(torch.randn(6, generator=generator, dtype=torch.float64), -1)

    def kl(logits: torch.Tensor) -> torch.Tensor:
        log_p = torch.log_softmax(logits, -1)
        return (log_p.exp() * (log_p - teacher)).sum()

    log_p = torch.log_softmax(student, -1)
    mask = torch.ones(6, dtype=torch.bool)
    expected_loss = (log_p.exp().detach() * divergence.k2(log_p, teacher, mask)).sum()
    (gradient,) = torch.autograd.grad(expected_loss, student)
    torch.testing.assert_close(gradient, torch.autograd.grad(kl(student), student)[0])
    assert kl(student - 0.1 * gradient) < kl(student) < kl(student + 0.1 * gradient)
