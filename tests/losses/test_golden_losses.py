"""Losses against the golden vectors, in float64 and float32, with gradients by autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from golden_vectors import cases_by_precision, check_case, tensor

from selfdistill_cli.losses import divergence, masks
from selfdistill_cli.losses.advantages import (
    generalized_advantage,
    group_advantage,
    place_rewards,
)
from selfdistill_cli.losses.cleaning import keep_active
from selfdistill_cli.losses.logprobs import token_statistics
from selfdistill_cli.losses.policy_gradient import (
    LOSS_TYPES,
    reduce_total,
    reduction_count,
    surrogate,
)
from selfdistill_cli.losses.value_weights import (
    apply_weights,
    head_loss,
    saturation_fraction,
    value_targets,
    value_weights,
    winners,
    within_trajectory_std,
)

Case = dict[str, Any]


@pytest.mark.parametrize(("case", "precision"), cases_by_precision("gae"))
def test_generalized_advantage(case: Case, precision: str) -> None:
    given = case["inputs"]
    mask = torch.tensor(given["mask"]).bool()
    rewards = place_rewards(
        mask,
        torch.tensor(given["turn_ids"]),
        given["step_rewards"],
        None if given["terminal_reward"] is None else tensor(given["terminal_reward"], precision),
        dtype=getattr(torch, precision),
    )
    advantages, returns = generalized_advantage(
        rewards,
        None if given["values"] is None else tensor(given["values"], precision),
        mask,
        given["gamma"],
        given["lam"],
        torch.tensor(given["truncated"]).bool(),
        tensor(given["bootstrap_value"], precision),
    )
    actual = {"token_rewards": rewards, "advantages": advantages, "returns": returns}
    check_case(actual, case, precision)


@pytest.mark.parametrize(("case", "precision"), cases_by_precision("group_advantage"))
def test_group_advantage(case: Case, precision: str) -> None:
    given = case["inputs"]
    advantages, flat = group_advantage(
        tensor(given["rewards"], precision),
        torch.tensor(given["group_ids"]),
        given["mode"],
        given["eps"],
    )
    check_case({"advantages": advantages, "flat_group_fraction": flat}, case, precision)


@pytest.mark.parametrize(("case", "precision"), cases_by_precision("policy_loss"))
def test_policy_loss(case: Case, precision: str) -> None:
    given = case["inputs"]
    kind, reduction = LOSS_TYPES[given["loss_type"]]
    assert reduction == given["reduction"]
    logprobs = tensor(given["logp"], precision).requires_grad_()
    mask = torch.tensor(given["mask"]).bool()
    out = surrogate(
        logprobs,
        tensor(given["old_logp"], precision),
        tensor(given["advantages"], precision),
        mask,
        kind=kind,
        eps_low=given["eps_low"],
        eps_high=given["eps_high"],
        dual_clip=given["dual_clip"],
        ratio_max=given["ratio_max"],
    )
    length = given["max_completion_length"]
    count = given["normalizer"] or max(1.0, reduction_count(mask, reduction, length))
    loss = reduce_total(out.per_token, mask, reduction, length) / count
    loss.backward()
    active = max(1.0, out.active)
    actual = {
        "loss": loss,
        "grad_logp": logprobs.grad,
        "ratio": out.ratio,
        "clip_fraction": (out.clip_high + out.clip_low) / active,
        "clip_fraction_high": out.clip_high / active,
        "clip_fraction_low": out.clip_low / active,
        "dual_clip_fraction": out.dual_clip / active,
        "approx_kl_k1": out.kl_k1 / active,
        "approx_kl_k3": out.kl_k3 / active,
    }
    check_case({key: actual[key] for key in case["expected"]}, case, precision)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_sampled_divergence(estimator: str) -> None:
    for param in cases_by_precision("kl", estimator=estimator):
        case, precision = param.values
        given = case["inputs"]
        student = tensor(given["student_logp"], precision).requires_grad_()
        mask = torch.tensor(given["mask"]).bool()
        per_token = getattr(divergence, estimator)(
            student, tensor(given["teacher_logp"], precision), mask
        )
        loss = per_token.sum() / max(1, int(mask.sum()))
        loss.backward()
        actual = {"per_token": per_token, "loss": loss, "grad_student_logp": student.grad}
        check_case(actual, case, precision)


@pytest.mark.parametrize(("case", "precision"), cases_by_precision("gear_value", op="winners"))
def test_winners(case: Case, precision: str) -> None:
    given = case["inputs"]
    won = winners(
        tensor(given["rewards"], precision), torch.tensor(given["group_ids"]), given["frac"]
    )
    check_case({"winners": won}, case, precision)


@pytest.mark.parametrize(("case", "precision"), cases_by_precision("gear_value", op="targets"))
def test_value_targets(case: Case, precision: str) -> None:
    given = case["inputs"]
    extra = given["token_rewards"], given["key_mask"]
    targets, target_mask = value_targets(
        tensor(given["rewards"], precision),
        torch.tensor(given["mask"]),
        given["target"],
        given["gamma"],
        None if extra[0] is None else tensor(extra[0], precision),
        None if extra[1] is None else torch.tensor(extra[1]),
    )
    check_case({"targets": targets, "target_mask": target_mask}, case, precision)


@pytest.mark.parametrize(("case", "precision"), cases_by_precision("gear_value", op="head_loss"))
def test_head_loss(case: Case, precision: str) -> None:
    given = case["inputs"]
    values = tensor(given["values"], precision).requires_grad_()
    loss = head_loss(
        values,
        tensor(given["targets"], precision),
        torch.tensor(given["target_mask"]),
        torch.tensor(given["winners"]),
    )
    loss.backward()
    check_case({"loss": loss, "grad_values": values.grad}, case, precision)


@pytest.mark.parametrize(("case", "precision"), cases_by_precision("gear_value", op="weights"))
def test_value_weights(case: Case, precision: str) -> None:
    given = case["inputs"]
    mask = torch.tensor(given["mask"]).bool()
    arrays = [
        tensor(given[key], precision).requires_grad_()
        for key in ("v_distill", "v_orig", "advantages")
    ]
    form = {key: given[key] for key in ("form", "temperature", "exp_clamp", "ratio_delta")}
    clip = {"clip_lo": given["clip_lo"], "clip_hi": given["clip_hi"]}
    weights = value_weights(*arrays, mask, **form, **clip, normalize=bool(given["normalize"]))
    raw = value_weights(*arrays, mask, **form, clip_lo=None, clip_hi=None, normalize=False)
    assert not weights.requires_grad
    actual = {
        "weights": weights,
        "advantages": apply_weights(keep_active(arrays[2], mask), weights, given["lam"]),
        "saturation_fraction": saturation_fraction(raw, *clip.values(), mask),
        "within_traj_std": within_trajectory_std(weights, mask),
    }
    check_case(actual, case, precision)


def _tokens_with(role: str, segments: list[list[list[Any]]]) -> torch.Tensor:
    """True at the tokens of a role; `segments` lists [role, length] per row."""
    return torch.tensor([[name == role for name, n in row for _ in range(n)] for row in segments])


@pytest.mark.parametrize(("case", "precision"), cases_by_precision("multiturn_mask"))
def test_multiturn_mask(case: Case, precision: str) -> None:
    given = case["inputs"]
    agent, pad = (_tokens_with(role, given["segments"]) for role in ("agent", "pad"))
    tokens, logits = torch.tensor(given["tokens"]), tensor(given["logits"], precision)
    active = masks.active_tokens(agent, ~pad)
    turns = masks.turn_ids(agent, active)
    # An identity as the unembedding makes the hidden states the logits.
    identity = torch.eye(logits.shape[-1], dtype=logits.dtype)
    logprobs, _ = token_statistics(
        logits, identity, None, tokens, active, temperature=given["temperature"]
    )
    counts = [len(row) for row in case["expected"]["turn_logp_sum"]]
    sums = masks.turn_sums(logprobs, turns, max(counts))
    actual = {
        "attention_mask": ~pad,
        "position_ids": masks.position_ids(~pad),
        "active": active[:, 1:],
        "labels": masks.labels(tokens, active)[:, 1:],
        "turn_ids": turns[:, 1:],
        "token_logp": logprobs[:, 1:],
        "logit_token_pairs": [
            [[t - 1, t] for t in row.nonzero().flatten().tolist()] for row in active
        ],
        "turn_logp_sum": [row[:n] for row, n in zip(sums, counts, strict=True)],
        "num_turns": masks.num_turns(agent),
    }
    assert not active[:, 0].any()
    assert not logprobs[:, 0].any()
    check_case(actual, case, precision)
