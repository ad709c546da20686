"""Token, step, view and segment weights, and sampled distillation, against the golden vectors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from golden_vectors import cases_by_precision, check_case, tensor

from selfdistill_cli.losses.cleaning import keep_active
from selfdistill_cli.losses.schedules import linear
from selfdistill_cli.losses.segments import divergence_segments, segment_weights
from selfdistill_cli.losses.token_distill import (
    gated_log_ratio,
    importance_weight,
    sampled_reverse,
)
from selfdistill_cli.losses.token_weights import (
    step_log_ratio,
    step_weights,
    token_log_ratio_weights,
    two_view_delta,
    two_view_weights,
    weights_per_step,
)
from selfdistill_cli.losses.value_weights import (
    apply_weights,
    saturation_fraction,
    within_trajectory_std,
)

Case = dict[str, Any]


def _arrays(given: Case, precision: str, *names: str) -> list[torch.Tensor]:
    """Inputs that ask for a gradient, so that a weight which keeps one is found."""
    return [tensor(given[name], precision).requires_grad_() for name in names]


def _applied(
    weights: torch.Tensor, raw: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor,
    eps: float, lam: float,
) -> Case:  # fmt: skip
    """The four results that every kind of token weight has."""
    assert not weights.requires_grad
    return {
        "weights": weights,
        "advantages": apply_weights(keep_active(advantages, mask), weights, lam),
        "saturation_fraction": saturation_fraction(raw, 1.0 - eps, 1.0 + eps, mask),
        "within_traj_std": within_trajectory_std(weights, mask),
    }


@pytest.mark.parametrize(
    ("case", "precision"), cases_by_precision("token_distill", method="rlsd_token")
)
def test_token_log_ratio_weights(case: Case, precision: str) -> None:
    given = case["inputs"]
    mask = torch.tensor(given["mask"]).bool()
    arrays = _arrays(given, precision, "teacher_logp", "student_logp", "advantages")
    weights = token_log_ratio_weights(*arrays, mask, given["eps"])
    raw = token_log_ratio_weights(*arrays, mask, None)
    actual = _applied(weights, raw, arrays[2], mask, given["eps"], given["lam"])
    check_case(actual, case, precision)


@pytest.mark.parametrize(("case", "precision"), cases_by_precision("two_view"))
def test_two_view_weights(case: Case, precision: str) -> None:
    given = case["inputs"]
    mask = torch.tensor(given["mask"]).bool()
    views = _arrays(given, precision, "logp_plain", "logp_aug", "logp_pruned")
    advantages = tensor(given["advantages"], precision)
    out = two_view_delta(*views, mask, given["alpha"])
    weights = two_view_weights(out.delta, advantages, mask, given["eps"])
    raw = two_view_weights(out.delta, advantages, mask, None)
    lam = linear(given["step"], given["lam0"], 0.0, given["decay_steps"])
    actual = {
        **_applied(weights, raw, advantages, mask, given["eps"], lam),
        "aug": out.augmented,
        "pruned": out.pruned,
        "delta": out.delta,
        "lam": lam,
    }
    check_case(actual, case, precision)


@pytest.mark.parametrize(("case", "precision"), cases_by_precision("step_weight"))
def test_step_weights(case: Case, precision: str) -> None:
    given = case["inputs"]
    mask, steps = (torch.tensor(given[name]) for name in ("mask", "step_ids"))
    teacher, student = _arrays(given, precision, "teacher_logp", "student_logp")
    delta = step_log_ratio(teacher, student, mask, steps, given["n_steps"], given["reduce"])
    advantages = tensor(given["advantages"], precision)
    rows = (delta, advantages, tensor(given["rewards"], precision), mask, steps)
    options = {key: given[key] for key in ("success_threshold", "eps", "lower")}
    per_step, _ = weights_per_step(*rows, **options)
    weights, saturation = step_weights(*rows, **options)
    everywhere = keep_active(advantages[:, None].expand(mask.shape), mask)
    actual = {
        "step_delta": delta,
        "step_weight": per_step,
        "weights": weights,
        "advantages": apply_weights(everywhere, weights, 1.0),
        "saturation_fraction": saturation,
    }
    check_case(actual, case, precision)


@pytest.mark.parametrize(("case", "precision"), cases_by_precision("gear_divergence"))
def test_divergence_segments(case: Case, precision: str) -> None:
    given = case["inputs"]
    mask = torch.tensor(given["mask"]).bool()
    divergence, entropy, advantages = _arrays(
        given, precision, "divergence", "entropy", "advantages"
    )
    turns = torch.tensor(given["turn_ids"])
    limits = {key: given[key] for key in ("q_div", "q_ent", "max_len")}
    out = divergence_segments(divergence, entropy, turns, mask, **limits)
    scores = (out.segment_divergence, advantages, mask)
    temperature = given["temperature"]
    weights = segment_weights(
        *scores, temperature=temperature, eps=given["eps"], normalize=bool(given["normalize"])
    )
    raw = segment_weights(*scores, temperature=temperature, eps=None, normalize=False)
    actual = {
        **_applied(weights, raw, advantages, mask, given["eps"], given["lam"]),
        **{key: [None if x != x else x for x in getattr(out, key).tolist()]
           for key in ("tau_d", "tau_h")},
        **{key: getattr(out, key) for key in ("anchors", "segment_id", "segment_divergence")},
    }  # fmt: skip
    check_case(actual, case, precision)


@pytest.mark.parametrize(("case", "precision"), cases_by_precision("token_distill", method="sdar"))
def test_gated_log_ratio(case: Case, precision: str) -> None:
    given = case["inputs"]
    mask = torch.tensor(given["mask"]).bool()
    student, teacher = _arrays(given, precision, "student_logp", "teacher_logp")
    per_token, gate = gated_log_ratio(student, teacher, mask, given["beta"])
    loss = given["coef"] * per_token.sum() / max(1, int(mask.sum()))
    loss.backward()
    assert teacher.grad is None
    actual = {
        "gate": gate, "per_token": per_token, "loss": loss, "grad_student_logp": student.grad,
    }  # fmt: skip
    check_case(actual, case, precision)


@pytest.mark.parametrize(
    ("case", "precision"), cases_by_precision("token_distill", method="sdpo_sampled")
)
def test_sampled_reverse(case: Case, precision: str) -> None:
    given = case["inputs"]
    mask = torch.tensor(given["mask"]).bool()
    student, teacher, old = _arrays(given, precision, "student_logp", "teacher_logp", "old_logp")
    weight = importance_weight(student, old, mask, given["is_clip"])
    per_token = sampled_reverse(student, teacher, mask, weight)
    loss = per_token.sum() / max(1, int(mask.sum()))
    loss.backward()
    assert teacher.grad is None
    assert old.grad is None
    actual = {
        "is_weight": weight, "per_token": per_token, "loss": loss,
        "grad_student_logp": student.grad,
    }  # fmt: skip
    check_case(actual, case, precision)
