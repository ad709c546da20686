"""Advantage weights from log-ratios between views of the same tokens.

The reward gives the direction of an update, a log-ratio its magnitude: w = clip(e^(sign(A) x)).
All weights are constants: no gradient flows through them. `eps=None` leaves the clip open, which
gives the raw weights that `value_weights.saturation_fraction` counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from selfdistill_cli.losses.cleaning import MAX_EXPONENT, bounded_exp, keep_active
from selfdistill_cli.losses.divergence import k1
from selfdistill_cli.losses.masks import turn_sums
from selfdistill_cli.losses.value_weights import value_weights

StepReduction = Literal["sum", "mean"]


@torch.no_grad()
def signed_weights(
    gap_BT: torch.Tensor,
    advantages_BT: torch.Tensor,
    mask_BT: torch.Tensor,
    eps: float | None,
    *,
    temperature: float = 1.0,
    normalize: bool = False,
) -> torch.Tensor:
    """Weight clip(e^(sign(A) gap / temperature), 1 - eps, 1 + eps) [B,T], 1 where inactive.

    The exponent is clamped to [-20, 20]. `normalize` then divides by the row's mean.
    """
    return value_weights(
        gap_BT, torch.zeros_like(gap_BT), advantages_BT, mask_BT,
        form="exp_sign", temperature=temperature, exp_clamp=MAX_EXPONENT, ratio_delta=0.0,
        clip_lo=None if eps is None else 1.0 - eps, clip_hi=None if eps is None else 1.0 + eps,
        normalize=normalize,
    )  # fmt: skip


@torch.no_grad()
def token_log_ratio_weights(
    teacher_BT: torch.Tensor,
    student_BT: torch.Tensor,
    advantages_BT: torch.Tensor,
    mask_BT: torch.Tensor,
    eps: float | None,
) -> torch.Tensor:
    """Weight of each token from its own log T - log S [B,T] (RLSD, arXiv 2604.03128)."""
    gap_BT = k1(teacher_BT, student_BT, mask_BT)
    return signed_weights(gap_BT, advantages_BT, mask_BT, eps)


@dataclass(frozen=True, kw_only=True)
class TwoViewDelta:
    """What two other contexts say about each token [B,T], 0 where inactive."""

    augmented: torch.Tensor
    """log p(augmented) - log p(plain)."""
    pruned: torch.Tensor
    """log p(plain) - log p(pruned): positive where the removed guidance supported the token."""
    delta: torch.Tensor
    """alpha * augmented + (1 - alpha) * pruned."""


@torch.no_grad()
def two_view_delta(
    plain_BT: torch.Tensor,
    augmented_BT: torch.Tensor,
    pruned_BT: torch.Tensor,
    mask_BT: torch.Tensor,
    alpha: float,
) -> TwoViewDelta:
    """Mix the log-ratios of two views of the same tokens (BCSD, arXiv 2608.09555)."""
    augmented = k1(augmented_BT, plain_BT, mask_BT)
    pruned = k1(plain_BT, pruned_BT, mask_BT)
    delta = alpha * augmented + (1.0 - alpha) * pruned
    return TwoViewDelta(augmented=augmented, pruned=pruned, delta=delta)


@torch.no_grad()
def two_view_weights(
    delta_BT: torch.Tensor, advantages_BT: torch.Tensor, mask_BT: torch.Tensor, eps: float | None
) -> torch.Tensor:
    """Weight of each token from the mixed log-ratio [B,T]; our reading of BCSD's map."""
    return signed_weights(delta_BT, advantages_BT, mask_BT, eps)


@torch.no_grad()
def step_log_ratio(
    teacher_BT: torch.Tensor,
    student_BT: torch.Tensor,
    mask_BT: torch.Tensor,
    step_ids_BT: torch.Tensor,
    num_steps: int,
    reduce: StepReduction,
) -> torch.Tensor:
    """Sum or mean of log T - log S over the active tokens of each step [B,K]; 0 if it has none.

    Tokens whose step is outside 0..num_steps-1 are left out.
    """
    steps_BT = _inside(step_ids_BT, mask_BT, num_steps)
    total_BK = turn_sums(k1(teacher_BT, student_BT, mask_BT), steps_BT, num_steps)
    if reduce == "sum":
        return total_BK
    return total_BK / _tokens_per_step(steps_BT, num_steps).clamp(min=1).to(total_BK.dtype)


@torch.no_grad()
def weights_per_step(
    delta_BK: torch.Tensor,
    advantages_B: torch.Tensor,
    rewards_B: torch.Tensor,
    mask_BT: torch.Tensor,
    step_ids_BT: torch.Tensor,
    *,
    success_threshold: float,
    eps: float,
    lower: float | None,
) -> tuple[torch.Tensor, float]:
    """Return (weight of each step [B,K], share of failed rows' steps above 1 + eps).

    Rows with reward < success_threshold have w = min(e^(sign(A) delta), 1 + eps), at least
    `lower` if given (SSPO, arXiv 2608.12764); other rows and steps without tokens have 1.
    """
    num_steps = delta_BK.shape[1]
    steps_BT = _inside(step_ids_BT, mask_BT, num_steps)
    failed_B1 = (rewards_B < success_threshold)[:, None]
    used_BK = (_tokens_per_step(steps_BT, num_steps) > 0) & failed_B1
    raw_BK = bounded_exp(advantages_B.sign()[:, None] * keep_active(delta_BK, used_BK))
    num_saturated = int((raw_BK > 1.0 + eps).sum())  # 1 where not used
    weights_BK = raw_BK.clamp(max=1.0 + eps)
    if lower is not None:
        weights_BK = weights_BK.clamp(min=lower)
    saturation = num_saturated / max(1, int(used_BK.sum()))
    return keep_active(weights_BK, used_BK, fill=1.0), saturation


@torch.no_grad()
def step_weights(
    delta_BK: torch.Tensor,
    advantages_B: torch.Tensor,
    rewards_B: torch.Tensor,
    mask_BT: torch.Tensor,
    step_ids_BT: torch.Tensor,
    *,
    success_threshold: float,
    eps: float,
    lower: float | None,
) -> tuple[torch.Tensor, float]:
    """As `weights_per_step`, given to the steps' active tokens [B,T]; 1 at all other tokens."""
    weights_BK, saturation = weights_per_step(
        delta_BK, advantages_B, rewards_B, mask_BT, step_ids_BT,
        success_threshold=success_threshold, eps=eps, lower=lower,
    )  # fmt: skip
    steps_BT = _inside(step_ids_BT, mask_BT, delta_BK.shape[1])
    # Column 0 stands for the tokens that belong to no step.
    padded = torch.cat([torch.ones_like(advantages_B)[:, None], weights_BK], 1)
    return padded.gather(1, steps_BT + 1), saturation


def _inside(step_ids_BT: torch.Tensor, mask_BT: torch.Tensor, num_steps: int) -> torch.Tensor:
    """Step of each active token, -1 elsewhere and for steps outside 0..num_steps-1."""
    is_step_BT = mask_BT.bool() & (step_ids_BT >= 0) & (step_ids_BT < num_steps)
    return torch.where(is_step_BT, step_ids_BT, torch.full_like(step_ids_BT, -1)).long()


def _tokens_per_step(steps_BT: torch.Tensor, num_steps: int) -> torch.Tensor:
    return turn_sums(torch.ones_like(steps_BT), steps_BT, num_steps)
