"""Distillation losses on the log-probabilities of sampled tokens, one number per token.

Results are 0 at inactive positions (weights: 1); only the student receives a gradient. SDPO on
the student's largest entries is `importance_weight` times `distribution.divergence`.
"""

from __future__ import annotations

import torch

from selfdistill_cli.losses.cleaning import bounded_exp, keep_active
from selfdistill_cli.losses.divergence import k1


def gated_log_ratio(
    student_BT: torch.Tensor, teacher_BT: torch.Tensor, mask_BT: torch.Tensor, beta: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (gate * (log T - log S) [B,T], gate = sigmoid(beta (log T - log S)) [B,T]).

    The gate is detached, so the gradient is that of the gated negative log-likelihood of the
    student's own tokens, which is not a divergence (SDAR, arXiv 2605.15155).
    """
    gap_BT = -k1(student_BT, teacher_BT, mask_BT)
    gate_BT = keep_active(torch.sigmoid(beta * gap_BT.detach()), mask_BT)
    return gate_BT * gap_BT, gate_BT


@torch.no_grad()
def importance_weight(
    student_BT: torch.Tensor,
    old_BT: torch.Tensor,
    mask_BT: torch.Tensor,
    is_clip: float | None,
) -> torch.Tensor:
    """Truncated ratio min(S / old, is_clip) [B,T], detached; 1 where inactive or without clip.

    The log-ratio is clamped to [-20, 20] (SDPO, arXiv 2601.20802).
    """
    log_ratio_BT = k1(student_BT, old_BT, mask_BT)
    if is_clip is None:
        return torch.ones_like(log_ratio_BT)
    return keep_active(bounded_exp(log_ratio_BT).clamp(max=is_clip), mask_BT, fill=1.0)


def sampled_reverse(
    student_BT: torch.Tensor,
    teacher_BT: torch.Tensor,
    mask_BT: torch.Tensor,
    weight_BT: torch.Tensor,
) -> torch.Tensor:
    """weight * sg(log S - log T) * log S [B,T]: its gradient is that of the reverse KL.

    The value itself is no estimate of a divergence (SDPO, arXiv 2601.20802, sampled form).
    """
    weight_BT = keep_active(weight_BT, mask_BT).detach()
    gap_BT = k1(student_BT, teacher_BT, mask_BT).detach()
    return weight_BT * gap_BT * keep_active(student_BT, mask_BT)
