"""Replace what must not be read, before any arithmetic: nan * 0 is nan, also in the gradient."""

from __future__ import annotations

import torch

MAX_EXPONENT = 20.0
"""Bound on the exponent of a probability ratio; exp(20) is 4.9e8."""


def keep_active(values: torch.Tensor, mask: torch.Tensor, fill: float = 0.0) -> torch.Tensor:
    """Return `values` where `mask` (same shape) is true and `fill` elsewhere; stops nan there."""
    return torch.where(mask.bool(), values, torch.full_like(values, fill))


def bounded_exp(exponent: torch.Tensor, bound: float = MAX_EXPONENT) -> torch.Tensor:
    """Return exp(clamp(exponent, -bound, bound)); a clamped exponent has zero gradient."""
    return exponent.clamp(-bound, bound).exp()


def row_mean(values_BT: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
    """Mean over the active tokens of each row [B]; 0 for a row without active tokens."""
    total_B = keep_active(values_BT, mask_BT).sum(-1)
    return total_B / mask_BT.sum(-1).clamp(min=1).to(total_B.dtype)
