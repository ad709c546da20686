"""What a step is, for the methods that judge steps: a token, a line, a segment or a turn."""

from __future__ import annotations

from typing import Literal

import torch

from selfdistill_cli.losses.segments import quantile

StepUnit = Literal["token", "line", "segment", "turn"]


@torch.no_grad()
def step_ids(
    mask_BT: torch.Tensor,
    turn_index_BT: torch.Tensor,
    entropy_BT: torch.Tensor | None,
    unit: StepUnit,
    entropy_quantile: float,
    line_starts_BT: torch.Tensor | None = None,
) -> torch.Tensor:
    """Number of the step of each active token, counted from 0 in each row, int64 [B,T]; else -1.

    token: every active token is a step. turn: one assistant turn. line: a line of a turn's text.
    segment: a step ends before a token of another turn or whose entropy exceeds the row's
    quantile (strictly).
    """
    mask_BT = mask_BT.bool()
    inactive = torch.full(mask_BT.shape, -1, dtype=torch.int64, device=mask_BT.device)
    if unit == "token":
        return torch.where(mask_BT, mask_BT.long().cumsum(-1) - 1, inactive)
    out_BT = inactive.clone()
    for row, active_T in enumerate(mask_BT):
        if bool(active_T.any()):
            starts = _starts(turn_index_BT[row][active_T])
            if unit == "segment":
                assert entropy_BT is not None, "segments are cut at entropies"
                entropy = entropy_BT[row][active_T]
                starts |= entropy > quantile(entropy.tolist(), entropy_quantile)
            elif unit == "line":
                assert line_starts_BT is not None, "lines are found in the sampled text"
                starts |= line_starts_BT[row][active_T].bool()
            starts[0] = True
            out_BT[row, active_T] = starts.long().cumsum(-1) - 1
    return out_BT


def _starts(turns_A: torch.Tensor) -> torch.Tensor:
    """True where another turn begins than that of the token before."""
    starts = torch.zeros_like(turns_A, dtype=torch.bool)
    starts[1:] = turns_A[1:] != turns_A[:-1]
    return starts


@torch.no_grad()
def step_mean_weights(step_ids_BT: torch.Tensor) -> torch.Tensor:
    """Weight 1 / (tokens of the step) of each token [B,T], 0 outside steps.

    A mean with these weights counts every step once, however long it is.
    """
    inside_BT = step_ids_BT >= 0
    num_steps = int(step_ids_BT.max()) + 1 if step_ids_BT.numel() else 0
    counts_BK = torch.zeros(step_ids_BT.shape[0], max(1, num_steps), device=step_ids_BT.device)
    counts_BK.scatter_add_(1, step_ids_BT.clamp(min=0), inside_BT.float())
    weights_BT = 1.0 / counts_BK.clamp(min=1.0).gather(1, step_ids_BT.clamp(min=0))
    return torch.where(inside_BT, weights_BT, torch.zeros_like(weights_BT))
