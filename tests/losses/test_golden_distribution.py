"""Divergences over the vocabulary against the golden vectors, gradients included."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from golden_vectors import cases_by_precision, check_case, tensor

from selfdistill_cli.losses.distribution import (
    FullTeacher,
    TopTeacher,
    divergence,
    top_ids,
    top_teacher,
)
from selfdistill_cli.losses.token_distill import importance_weight

Case = dict[str, Any]


def _as_model(logits_NV: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden states, unembedding and bias that give these logits.

    The unembedding is the identity; closed entries are closed by the bias, as 0 * -inf is nan.
    """
    closed_NV = logits_NV == -math.inf
    closed_V = closed_NV.any(0)
    assert (closed_NV == closed_V).all(), "closed entries must be the same in every row"
    bias_V = logits_NV.new_zeros(closed_V.shape).masked_fill(closed_V, -math.inf)
    identity = torch.eye(logits_NV.shape[1], dtype=logits_NV.dtype)
    return logits_NV.masked_fill(closed_NV, 0.0), identity, bias_V


def _spread(values: torch.Tensor, mask: torch.Tensor, fill: float = 0.0) -> torch.Tensor:
    """Put one entry per active token at its position of [B,T,...]."""
    out = torch.full((*mask.shape, *values.shape[1:]), fill, dtype=values.dtype)
    out[mask] = values.detach()
    return out


def _listed(ids_NK: torch.Tensor, mask: torch.Tensor) -> list[list[list[int]]]:
    """Ids of active tokens, and an empty list at the others."""
    remaining = iter(ids_NK.tolist())
    return [[next(remaining) if on else [] for on in row] for row in mask.tolist()]


def _top_case(
    given: Case, student: Any, teacher: Any, temperature: float
) -> tuple[TopTeacher, torch.Tensor]:
    """The teacher over the entries that a case asks for, and these entries."""
    if given["topk_from"] == "student":
        ids = top_ids(*student, given["topk"], chunk_size=1)
        return top_teacher(*teacher, temperature=temperature, ids_NK=ids, chunk_size=2), ids
    top = top_teacher(*teacher, temperature=temperature, k=given["topk"], chunk_size=1)
    assert top.ids_NK.equal(top_ids(*teacher, given["topk"]))
    return top, top.ids_NK


def _models(given: Case, mask: torch.Tensor, precision: str) -> tuple[Any, Any]:
    """The student, whose hidden states get a gradient, and the teacher."""
    both = [
        _as_model(tensor(given[f"{name}_logits"], precision)[mask])
        for name in ("student", "teacher")
    ]
    both[0][0].requires_grad_()
    return both[0], both[1]


@pytest.mark.parametrize("chunk_size", [None, 1])
@pytest.mark.parametrize(("case", "precision"), cases_by_precision("kl", estimator="full"))
def test_full_divergence(case: Case, precision: str, chunk_size: int | None) -> None:
    given = case["inputs"]
    mask = torch.tensor(given["mask"]).bool()
    student, teacher = _models(given, mask, precision)
    per_token = divergence(
        *student,
        FullTeacher(hidden_NH=teacher[0], unembedding_VH=teacher[1], bias_V=teacher[2]),
        kind=given["kind"],
        alpha=given["alpha"],
        temperature=given["temperature"],
        chunk_size=chunk_size,
    )
    loss = per_token.sum() / max(1, int(mask.sum()))
    loss.backward()
    actual = {
        "per_token": _spread(per_token, mask),
        "loss": loss,
        "grad_student_logits": _spread(student[0].grad, mask),
    }
    check_case(actual, case, precision)


@pytest.mark.parametrize("chunk_size", [None, 1])
@pytest.mark.parametrize(("case", "precision"), cases_by_precision("kl", estimator="topk_tail"))
def test_top_entries_and_tail(case: Case, precision: str, chunk_size: int | None) -> None:
    given = case["inputs"]
    mask = torch.tensor(given["mask"]).bool()
    student, teacher = _models(given, mask, precision)
    top, ids = _top_case(given, student, teacher, given["temperature"])
    per_token = divergence(
        *student,
        top,
        kind=given["kind"],
        alpha=given["alpha"],
        temperature=given["temperature"],
        chunk_size=chunk_size,
    )
    loss = per_token.sum() / max(1, int(mask.sum()))
    loss.backward()
    actual = {
        "per_token": _spread(per_token, mask),
        "loss": loss,
        "topk_indices": _listed(ids, mask),
        "grad_student_logits": _spread(student[0].grad, mask),
    }
    check_case({key: actual[key] for key in case["expected"]}, case, precision)


@pytest.mark.parametrize(
    ("case", "precision"), cases_by_precision("token_distill", method="sdpo_topk")
)
def test_sdpo_on_top_entries(case: Case, precision: str) -> None:
    given = case["inputs"]
    mask = torch.tensor(given["mask"]).bool() & torch.tensor(given["row_mask"]).bool()[:, None]
    student, teacher = _models(given, mask, precision)
    temperature = given["temperature"]
    top, ids = _top_case(given, student, teacher, temperature)
    sampled = torch.tensor(given["tokens"])[mask][:, None]
    student_logp = top_teacher(*student, temperature=temperature, ids_NK=sampled).logprobs_NK[:, 0]
    weight = importance_weight(
        _spread(student_logp, mask, math.nan),
        tensor(given["old_token_logp"], precision),
        mask,
        given["is_clip"],
    )
    values = divergence(*student, top, kind="jsd", alpha=given["alpha"], temperature=temperature)
    per_token = weight[mask] * values
    loss = per_token.sum() / max(1, int(mask.sum()))
    loss.backward()
    actual = {
        "per_token": _spread(per_token, mask),
        "loss": loss,
        "grad_student_logits": _spread(student[0].grad, mask),
        "topk_indices": _listed(ids, mask),
        "is_weight": weight,
        "student_token_logp": _spread(student_logp, mask),
        "effective_mask": mask,
    }
    check_case(actual, case, precision)
