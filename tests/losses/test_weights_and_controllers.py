"""Properties of weights, segments, controllers and slow copies that no single vector shows."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from selfdistill_cli.losses.averaging import GateState, copy_, gate_update, half_life, lerp_
from selfdistill_cli.losses.policy_gradient import surrogate
from selfdistill_cli.losses.schedules import (
    PidState,
    cosine,
    linear,
    pid_update,
    proportional_update,
    warmup_decay,
)
from selfdistill_cli.losses.segments import divergence_segments, segment_weights
from selfdistill_cli.losses.token_distill import gated_log_ratio, importance_weight, sampled_reverse
from selfdistill_cli.losses.token_weights import (
    step_log_ratio,
    step_weights,
    token_log_ratio_weights,
)

few = settings(max_examples=15, deadline=None, derandomize=True)
seeds = st.integers(0, 10_000)
nan = math.nan


def _batch(seed: int, rows: int = 6, length: int = 8) -> tuple[torch.Tensor, ...]:
    """Teacher and student log-probabilities, row advantages and mask; nan where inactive."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, length, generator=generator) < 0.6
    draws = torch.randn(2, rows, length, generator=generator, dtype=torch.float64)
    teacher, student = (torch.where(mask, -x.abs(), nan) for x in draws)
    advantages = torch.randn(rows, generator=generator, dtype=torch.float64)
    return teacher, student, advantages, mask


STEP: dict[str, Any] = {"success_threshold": 1.0, "eps": 0.2, "lower": None}


@few
@given(seeds, st.sampled_from(["sum", "mean"]))
def test_one_step_per_trajectory_weighs_the_trajectory(seed: int, reduce: Any) -> None:
    teacher, student, advantages, mask = _batch(seed)
    step = torch.zeros(mask.shape, dtype=torch.long)
    delta = step_log_ratio(teacher, student, mask, step, 1, reduce)
    failed = torch.zeros_like(advantages)
    weights, _ = step_weights(delta, advantages, failed, mask, step, **STEP)
    gap = torch.where(mask, teacher - student, 0.0).sum(-1)
    if reduce == "mean":
        gap = gap / mask.sum(-1).clamp(min=1)
    expected = (advantages.sign() * gap).exp().clamp(max=1.2)[:, None].expand(mask.shape)
    torch.testing.assert_close(weights, torch.where(mask, expected, 1.0))
    won, saturation = step_weights(delta, advantages, failed + 1, mask, step, **STEP)
    assert (won == 1).all()
    assert saturation == 0.0


@few
@given(seeds)
def test_one_token_per_step_is_the_token_weight(seed: int) -> None:
    teacher, student, advantages, mask = _batch(seed)
    steps = torch.arange(8).expand(mask.shape)
    delta = step_log_ratio(teacher, student, mask, steps, 8, "sum")
    options = {**STEP, "lower": 0.8}
    weights, _ = step_weights(delta, advantages, advantages * 0, mask, steps, **options)
    everywhere = advantages[:, None].expand(mask.shape)
    expected = token_log_ratio_weights(teacher, student, everywhere, mask, 0.2)
    torch.testing.assert_close(weights, expected)


def test_tokens_of_steps_out_of_range_keep_the_weight_one() -> None:
    teacher, student = torch.tensor([[-1.0, -1.0, nan]]), torch.tensor([[-2.0, -2.0, nan]])
    mask, steps = torch.tensor([[1, 1, 0]]), torch.tensor([[0, 5, 99]])
    delta = step_log_ratio(teacher, student, mask, steps, 2, "sum")
    weights, saturation = step_weights(delta, torch.ones(1), torch.zeros(1), mask, steps, **STEP)
    assert delta.tolist() == [[1.0, 0.0]]
    assert weights.tolist() == [[pytest.approx(1.2), 1.0, 1.0]]
    assert saturation == 1.0


@few
@given(seeds, st.integers(1, 5))
def test_segments_are_runs_with_one_divergence(seed: int, max_len: int) -> None:
    divergence, entropy, advantages, mask = _batch(seed)
    turns = torch.arange(8).expand(mask.shape) // 3
    out = divergence_segments(-divergence, -entropy, turns, mask, 0.5, 0.7, max_len)
    for row in range(len(mask)):
        ids, own = out.segment_id[row][mask[row]], (-divergence)[row][mask[row]]
        kept, anchors = out.segment_divergence[row][mask[row]], out.anchors[row][mask[row]]
        for number in range(int(ids.max()) + 1 if len(ids) else 0):
            where = (ids == number).nonzero().flatten()
            assert 1 <= len(where) <= max_len
            assert where.tolist() == list(range(int(where[0]), int(where[-1]) + 1))
            assert anchors[where[0]]
            assert (kept[where] == own[where[0]]).all()
            assert len(turns[row][mask[row]][where].unique()) == 1
        assert kept[ids < 0].equal(own[ids < 0])
        assert not anchors[ids < 0].any()
    everywhere = advantages[:, None].expand(mask.shape)
    weights = segment_weights(
        out.segment_divergence, everywhere, mask, temperature=1.0, eps=0.2, normalize=False
    )
    raised = (weights > 1) & mask
    assert not raised[advantages > 0].any()
    assert (weights[~mask] == 1).all()


def test_segments_of_a_row_with_infinite_divergences() -> None:
    divergence = torch.tensor([[0.0, math.inf, math.inf, math.inf]])
    mask = torch.ones(1, 4)
    out = divergence_segments(divergence, mask * 0, mask * 0, mask, 0.9, 0.9, 8)
    assert out.tau_d.tolist() == [math.inf]
    assert not out.anchors.any()


def test_a_quantile_rank_that_rounding_moves_is_the_order_statistic() -> None:
    """100 * 0.07 is 7.000000000000001 in binary and 100 * 0.29 is 28.999999999999996."""
    values = torch.arange(101.0, dtype=torch.float64)[None]
    ones = torch.ones_like(values)
    for q, expected in ((0.07, 7.0), (0.29, 29.0), (0.295, 29.5), (1.0, 100.0), (0.0, 0.0)):
        out = divergence_segments(values, ones, ones, ones, q, 0.5, 8)
        assert out.tau_d.tolist() == [pytest.approx(expected, abs=1e-9)]
        assert int(out.anchors.sum()) == int((values > expected).sum())


def test_sampled_losses_have_the_gradient_of_the_reverse_divergence() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, generator=generator, dtype=torch.float64, requires_grad=True)
    teacher = torch.log_softmax(torch.randn(6, generator=generator, dtype=torch.float64), -1)
    log_s = torch.log_softmax(logits, -1)
    probability, mask = log_s.exp().detach(), torch.ones(6)
    expected = torch.autograd.grad((log_s.exp() * (log_s - teacher)).sum(), logits)
    log_s = torch.log_softmax(logits, -1)
    sampled = (probability * sampled_reverse(log_s, teacher, mask, mask)).sum()
    torch.testing.assert_close(torch.autograd.grad(sampled, logits), expected)


def test_a_sampled_loss_is_a_policy_gradient_with_the_gap_as_advantage() -> None:
    teacher, student, _, mask = _batch(3)
    student.requires_grad_()
    loss = sampled_reverse(student, teacher, mask, torch.ones_like(student))
    advantage = (teacher - student).detach()
    policy = surrogate(
        student, student.detach(), advantage, mask, kind="reinforce",
        eps_low=0.2, eps_high=0.2, dual_clip=None, ratio_max=None,
    ).per_token  # fmt: skip
    torch.testing.assert_close(loss, policy)


def test_a_closed_gate_stops_the_gradient() -> None:
    student = torch.tensor([[-1.0, -1.0, nan]], requires_grad=True)
    teacher, mask = torch.tensor([[-200.0, -0.5, nan]]), torch.tensor([[1, 1, 0]])
    per_token, gate = gated_log_ratio(student, teacher, mask, 5.0)
    (gradient,) = torch.autograd.grad(per_token.sum(), student)
    assert gradient.tolist() == [[0.0, pytest.approx(-1 / (1 + math.exp(-2.5))), 0.0]]
    assert gate.tolist()[0][0] == 0.0


def test_an_importance_weight_below_one_leaves_inactive_tokens_alone() -> None:
    new, old = torch.tensor([[-1.0, -90.0, nan]]), torch.tensor([[-1.0, -1.0, nan]])
    weight = importance_weight(new, old, torch.tensor([[1, 1, 0]]), 0.5)
    assert weight.tolist() == [[0.5, pytest.approx(math.exp(-20)), 1.0]]


PID: dict[str, float] = {"target": 0.1, "kp": 0.1, "ki": 0.01, "kd": 0.05, "beta_min": 1e-4,
                         "beta_max": 10.0, "integral_max": 2.0}  # fmt: skip


@few
@given(st.floats(0.0, 10.0), st.booleans())
def test_a_first_reading_raises_beta_iff_above_the_target(kl: float, synced: bool) -> None:
    start = PidState(beta=0.1, integral=-1.5, previous_error=7.0) if synced else PidState(beta=0.1)
    state = pid_update(start, kl, synced, **PID)
    if abs(kl - 0.1) > 1e-9:
        assert (state.beta > 0.1) == (kl > 0.1)
    assert state.derivative == 0.0
    assert abs(state.integral) <= 2.0


@pytest.mark.parametrize("kl", [nan, math.inf, -math.inf])
def test_a_reading_that_is_not_finite_changes_nothing(kl: float) -> None:
    start = PidState(beta=0.3, integral=1.0, previous_error=0.5, derivative=0.1)
    kept = PidState(beta=0.3, integral=1.0, previous_error=0.5)
    assert pid_update(start, kl, False, **PID) == kept
    assert pid_update(start, kl, True, **PID) == PidState(beta=0.3)
    assert pid_update(kept, 0.2, False, **PID).derivative == pytest.approx(0.5)
    assert proportional_update(0.3, kl, 0.1, 64, 1000) == 0.3


def test_a_huge_reading_does_not_overflow() -> None:
    assert pid_update(PidState(beta=0.1), 1e12, False, **PID).beta == 10.0
    assert pid_update(PidState(beta=0.1), -1e12, False, **PID).beta == 1e-4


@pytest.mark.parametrize("shape", [linear, cosine])
def test_schedules_without_steps_are_at_their_end(shape: Any) -> None:
    assert [shape(n, 1.0, 2.0, 0) for n in (-1, 0, 1)] == [2.0, 2.0, 2.0]
    assert [shape(n, 1.0, 2.0, 4) for n in (-1, 0, 2, 4)] == [1.0, 1.0, pytest.approx(1.5), 2.0]


def test_no_warm_up_starts_at_the_peak() -> None:
    assert warmup_decay(0, 0.0, 1.0, 0.1, 0, 10, "cosine") == 1.0
    assert warmup_decay(3, 0.0, 1.0, 0.1, 3, 0, "linear") == 0.1


def _copies(dtype: torch.dtype = torch.float32) -> tuple[dict[str, Any], dict[str, Any]]:
    slow = {"w": torch.tensor([1.0, 2.0], dtype=dtype), "n": torch.tensor([3])}
    student = {"n": torch.tensor([5]), "w": torch.tensor([0.3, nan], dtype=dtype)}
    return slow, student


def test_copies_change_in_place_and_keep_the_students_values() -> None:
    slow, student = _copies()
    same = slow["w"]
    copy_(slow, student)
    assert slow["w"] is same
    assert slow["w"][0] == student["w"][0]
    assert slow["n"].tolist() == [5]
    student["w"][0] = 9.0
    assert same[0] == torch.tensor(0.3)


@few
@given(seeds, st.floats(0.0, 1.0))
def test_an_average_of_equal_weights_stays_bit_for_bit(seed: int, decay: float) -> None:
    values = torch.randn(50, generator=torch.Generator().manual_seed(seed))
    slow = {"w": values.clone()}
    lerp_(slow, {"w": values}, decay)
    assert slow["w"].equal(values)


def test_a_bfloat16_student_moves_a_float32_copy() -> None:
    slow = {"w": torch.ones(1)}
    student = {"w": torch.full((1,), 1.0234375, dtype=torch.bfloat16, requires_grad=True)}
    for _ in range(1000):
        lerp_(slow, student, 0.995)
    assert slow["w"].dtype == torch.float32
    assert float(slow["w"]) == pytest.approx(1.0234375 - 0.0234375 * 0.995**1000, abs=1e-5)


@pytest.mark.parametrize("follow", [copy_, lambda slow, student: lerp_(slow, student, 0.5)])
def test_other_names_or_shapes_are_an_error_that_changes_nothing(follow: Any) -> None:
    slow, student = _copies()
    with pytest.raises(ValueError, match=r"student lacks \['w'\].*copy lacks \['extra'\]"):
        follow(slow, {"n": student["n"], "extra": student["w"]})
    with pytest.raises(ValueError, match=r"w: \[2\] and \[3\]"):
        follow(slow, {**student, "w": torch.zeros(3)})
    assert slow["w"].tolist() == [1.0, 2.0]
    assert slow["n"].tolist() == [3]


def test_half_lives_at_the_ends() -> None:
    assert (half_life(0.0), half_life(1.0)) == (0.0, math.inf)


@pytest.mark.parametrize("score", [nan, math.inf, 0.55])
def test_the_gate_counts_only_finite_wins_above_the_margin(score: float) -> None:
    state = GateState(teacher_score=0.5, streak=1)
    assert gate_update(state, score, 0.05, 2) == (GateState(teacher_score=0.5), False)
    assert gate_update(state, None, 0.05, 2) == (state, False)
    assert gate_update(state, 0.6, 0.05, 2) == (GateState(teacher_score=0.6), True)
