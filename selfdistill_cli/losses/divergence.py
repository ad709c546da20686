"""Sampled estimators of KL(student || other), one number per token.

The tokens were sampled from the student. Per-token results are summed or averaged by the caller.
Source: J. Schulman, "Approximating KL divergence", http://joschu.net/blog/kl-approx.html
"""

from __future__ import annotations

import torch

from selfdistill_cli.losses.cleaning import MAX_EXPONENT, keep_active


def k1(student_BT: torch.Tensor, other_BT: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
    """Unbiased log-ratio: log S - log T [B,T]. As a loss its gradient has expectation zero."""
    return _log_ratio(student_BT, other_BT, mask_BT)


def k2(student_BT: torch.Tensor, other_BT: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
    """Half the squared log-ratio [B,T]; its gradient is the gradient of the reverse KL."""
    return 0.5 * _log_ratio(student_BT, other_BT, mask_BT).square()


def k3(student_BT: torch.Tensor, other_BT: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
    """exp(x) - 1 - x with x = log T - log S clamped to [-20, 20]: unbiased and never negative."""
    x_BT = (-_log_ratio(student_BT, other_BT, mask_BT)).clamp(-MAX_EXPONENT, MAX_EXPONENT)
    return torch.expm1(x_BT) - x_BT


def _log_ratio(
    student_BT: torch.Tensor, other_BT: torch.Tensor, mask_BT: torch.Tensor
) -> torch.Tensor:
    """log S - log T at active tokens, 0 elsewhere; only the student receives a gradient."""
    return keep_active(student_BT, mask_BT) - keep_active(other_BT, mask_BT).detach()
