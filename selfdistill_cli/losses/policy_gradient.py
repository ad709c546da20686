"""Policy-gradient surrogates: a loss per token, and the three ways to average it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from selfdistill_cli.losses.cleaning import bounded_exp, keep_active, row_mean
from selfdistill_cli.losses.divergence import k1, k3

Kind = Literal["ppo_clip", "gspo", "gspo_token", "cispo", "reinforce"]
Reduction = Literal["token_mean", "seq_mean", "constant"]

LOSS_TYPES: dict[str, tuple[Kind, Reduction]] = {
    "ppo": ("ppo_clip", "token_mean"),
    "grpo": ("ppo_clip", "seq_mean"),
    "dapo": ("ppo_clip", "token_mean"),
    "dr_grpo": ("ppo_clip", "constant"),
    "gspo": ("gspo", "seq_mean"),
    "gspo_token": ("gspo_token", "seq_mean"),
    "cispo": ("cispo", "token_mean"),
    "reinforce": ("reinforce", "token_mean"),
    "a2c": ("reinforce", "token_mean"),
}
"""Surrogate and reduction of each loss type; dapo differs from ppo by a larger upper clip."""


@dataclass(frozen=True, kw_only=True)
class SurrogateOutput:
    """Loss per token, and diagnostics as sums over active tokens (divide by `active`)."""

    per_token: torch.Tensor
    """[B,T] loss to be minimised, 0 at inactive positions."""
    ratio: torch.Tensor
    """[B,T] detached probability ratio (gspo: of the row), 0 at inactive positions."""
    clip_high: float
    """Tokens with A > 0 above the upper clip (cispo: above the cap, whatever the sign)."""
    clip_low: float
    """Tokens with A < 0 below the lower clip."""
    dual_clip: float
    """Tokens with A < 0 above the dual clip."""
    kl_k1: float
    """Sum of log old - log new."""
    kl_k3: float
    """Sum of the k3 estimate of KL(old || new)."""
    active: float
    """Number of active tokens."""


def surrogate(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    *,
    kind: Kind,
    eps_low: float,
    eps_high: float,
    dual_clip: float | None,
    ratio_max: float | None,
) -> SurrogateOutput:
    """Loss of each token; all tensors [B,T], gradient to `logprobs` only.

    ppo_clip: -min(r A, clip(r) A), with `dual_clip` c bounded by -c A where A < 0 (arXiv
    1707.06347, 1912.09729); gspo: r is the row's exp(mean log-ratio) (arXiv 2507.18071);
    gspo_token: the same value, but token t's gradient reaches token t only; cispo: -sg(min(r,
    ratio_max)) A log p (arXiv 2506.13585); reinforce: -A log p. Log-ratios are clamped to
    [-20, 20].
    """
    mask = mask.bool()
    new = keep_active(logprobs, mask)
    old = keep_active(old_logprobs, mask).detach()
    gain = keep_active(advantages, mask).detach()
    ratio = keep_active(_ratio(new, old, mask, kind), mask)
    if kind in ("cispo", "reinforce"):
        loss = -_score_weight(ratio, kind, ratio_max) * gain * new
    else:
        loss = _clipped(ratio, gain, eps_low, eps_high, dual_clip)
    detached = ratio.detach()
    counts = _clip_counts(detached, gain, kind, eps_low, eps_high, dual_clip, ratio_max)
    with torch.no_grad():
        sums = [*counts, k1(old, new, mask).sum(), k3(old, new, mask).sum(), mask.sum()]
        high, low, dual, kl_k1, kl_k3, active = torch.stack([x.double() for x in sums]).tolist()
    return SurrogateOutput(
        per_token=keep_active(loss, mask), ratio=detached,
        clip_high=high, clip_low=low, dual_clip=dual,
        kl_k1=kl_k1, kl_k3=kl_k3, active=active,
    )  # fmt: skip


def _ratio(new: torch.Tensor, old: torch.Tensor, mask: torch.Tensor, kind: Kind) -> torch.Tensor:
    difference = new - old
    if kind not in ("gspo", "gspo_token"):
        return bounded_exp(difference)
    row_ratio = bounded_exp(row_mean(difference, mask))[:, None].expand_as(new)
    if kind == "gspo":
        return row_ratio
    return row_ratio.detach() * (new - new.detach()).exp()


def _clipped(
    ratio: torch.Tensor,
    gain: torch.Tensor,
    eps_low: float,
    eps_high: float,
    dual_clip: float | None,
) -> torch.Tensor:
    loss = -torch.minimum(ratio * gain, ratio.clamp(1.0 - eps_low, 1.0 + eps_high) * gain)
    if dual_clip is None:
        return loss
    return torch.where(gain < 0, torch.minimum(loss, -dual_clip * gain), loss)


def _score_weight(ratio: torch.Tensor, kind: Kind, ratio_max: float | None) -> torch.Tensor:
    if kind == "reinforce":
        return torch.ones_like(ratio)
    return ratio.detach().clamp(max=ratio_max) if ratio_max is not None else ratio.detach()


def _clip_counts(
    ratio: torch.Tensor,
    gain: torch.Tensor,
    kind: Kind,
    eps_low: float,
    eps_high: float,
    dual_clip: float | None,
    ratio_max: float | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Numbers of tokens clipped (high, low, dual); inactive tokens have ratio 0 and gain 0."""
    none = torch.zeros((), device=ratio.device)
    if kind == "reinforce":
        return none, none, none
    if kind == "cispo":
        return (ratio > ratio_max).sum() if ratio_max is not None else none, none, none
    high = ((gain > 0) & (ratio > 1.0 + eps_high)).sum()
    low = ((gain < 0) & (ratio < 1.0 - eps_low)).sum()
    dual = ((gain < 0) & (ratio > dual_clip)).sum() if dual_clip is not None else none
    return high, low, dual


def reduce_total(
    per_token_BT: torch.Tensor,
    mask_BT: torch.Tensor,
    reduction: Reduction,
    max_completion_length: int | None = None,
) -> torch.Tensor:
    """Sum of a micro-batch, a scalar; divided by all `reduction_count`s it is the loss.

    token_mean and constant: sum over active tokens; seq_mean: sum over rows of the row's mean. A
    batch without active tokens gives 0 that is connected to the graph.
    """
    if reduction == "seq_mean":
        return row_mean(per_token_BT, mask_BT).sum()
    return keep_active(per_token_BT, mask_BT).sum()


def reduction_count(
    mask_BT: torch.Tensor, reduction: Reduction, max_completion_length: int | None = None
) -> float:
    """This micro-batch's share of the denominator of `reduce_total`.

    token_mean: active tokens; seq_mean: rows, empty ones included; constant: rows times
    `max_completion_length`. The sum over micro-batches may be 0: divide by max(1, sum).
    """
    if reduction == "token_mean":
        return float(mask_BT.sum())
    num_rows = float(mask_BT.shape[0])
    if reduction == "seq_mean":
        return num_rows
    assert max_completion_length is not None, "reduction `constant` needs max_completion_length"
    return num_rows * max_completion_length
