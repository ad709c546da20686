"""The critic's regression loss."""

from __future__ import annotations

import torch

from selfdistill_cli.losses.cleaning import keep_active


def value_loss(
    values_BT: torch.Tensor,
    old_values_BT: torch.Tensor,
    returns_BT: torch.Tensor,
    mask_BT: torch.Tensor,
    clip: float | None,
) -> torch.Tensor:
    """Half the squared error of each token [B,T], 0 at inactive positions.

    With `clip`, the larger of the losses at V and at V kept within `clip` of its old estimate,
    as in the reference implementation of PPO (arXiv 1707.06347).
    """
    values = keep_active(values_BT, mask_BT)
    returns = keep_active(returns_BT, mask_BT).detach()
    error = (values - returns).square()
    if clip is not None:
        old = keep_active(old_values_BT, mask_BT).detach()
        kept = old + (values - old).clamp(-clip, clip)
        error = torch.maximum(error, (kept - returns).square())
    return 0.5 * error
