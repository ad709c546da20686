"""GEAR, paper form: segments that start where student and teacher part.

A reconstruction of the idea in arXiv 2605.11853, not the authors' published equations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from selfdistill_cli.losses.token_weights import signed_weights

_NEARLY_INTEGER = 1e-9


@dataclass(frozen=True, kw_only=True)
class Segments:
    """Where the segments are; all on the device and in the dtype of the divergence."""

    anchors: torch.Tensor
    """[B,T] bool: divergence above the row's threshold, also inside a running segment."""
    segment_id: torch.Tensor
    """[B,T] int64, counted from 0 in each row, -1 outside segments."""
    segment_divergence: torch.Tensor
    """[B,T] divergence of the segment's first token, the token's own outside; 0 if inactive."""
    tau_d: torch.Tensor
    """[B] threshold of the divergence, nan for a row without active tokens."""
    tau_h: torch.Tensor
    """[B] threshold of the entropy, nan for a row without active tokens."""


@torch.no_grad()
def divergence_segments(
    divergence_BT: torch.Tensor,
    entropy_BT: torch.Tensor,
    turn_ids_BT: torch.Tensor,
    mask_BT: torch.Tensor,
    q_div: float,
    q_ent: float,
    max_len: int,
) -> Segments:
    """Cut each row's active tokens into segments that start at anchors.

    The thresholds are the row's quantiles `q_div` and `q_ent`. A token above tau_d starts a
    segment, which ends before the next token of another turn, or with an entropy above tau_h, or
    beyond `max_len` tokens; that token may start the next one. Later anchors inside a segment
    change nothing, and inactive tokens between active ones do not end it.
    """
    shape, device = divergence_BT.shape, divergence_BT.device
    anchors_BT = torch.zeros(shape, dtype=torch.bool)
    ids_BT = torch.full(shape, -1)
    out_BT = torch.zeros(shape, dtype=divergence_BT.dtype)
    taus_2B = torch.full((2, shape[0]), math.nan, dtype=torch.float64)
    # Row by row in Python numbers: the scan depends on where the previous segment ended.
    inputs = (x.cpu() for x in (divergence_BT, entropy_BT, turn_ids_BT, mask_BT.bool()))
    for row, (divergence_T, entropy_T, turns_T, active_T) in enumerate(zip(*inputs, strict=True)):
        if not bool(active_T.any()):
            continue
        divergence: list[float] = divergence_T[active_T].tolist()
        entropy: list[float] = entropy_T[active_T].tolist()
        tau_d, tau_h = quantile(divergence, q_div), quantile(entropy, q_ent)
        is_anchor = [x > tau_d for x in divergence]
        may_join = [not x > tau_h for x in entropy]
        starts = _segment_starts(is_anchor, may_join, turns_T[active_T].tolist(), max_len)
        kept = [divergence[i if start < 0 else start] for i, start in enumerate(starts)]
        anchors_BT[row, active_T] = torch.tensor(is_anchor)
        ids_BT[row, active_T] = torch.tensor(_numbered(starts))
        out_BT[row, active_T] = torch.tensor(kept, dtype=out_BT.dtype)
        taus_2B[:, row] = torch.tensor([tau_d, tau_h], dtype=taus_2B.dtype)
    taus_2B = taus_2B.to(device, divergence_BT.dtype)
    return Segments(
        anchors=anchors_BT.to(device), segment_id=ids_BT.to(device),
        segment_divergence=out_BT.to(device), tau_d=taus_2B[0], tau_h=taus_2B[1],
    )  # fmt: skip


@torch.no_grad()
def segment_weights(
    segment_divergence_BT: torch.Tensor,
    advantages_BT: torch.Tensor,
    mask_BT: torch.Tensor,
    *,
    temperature: float,
    eps: float | None,
    normalize: bool,
) -> torch.Tensor:
    """Weight clip(e^(-sign(A) D / temperature), 1 - eps, 1 + eps) [B,T], 1 where inactive.

    `eps=None` leaves the clip open; `normalize` then divides by the row's mean.
    """
    return signed_weights(
        -segment_divergence_BT, advantages_BT, mask_BT, eps,
        temperature=temperature, normalize=normalize,
    )  # fmt: skip


def _segment_starts(
    is_anchor: Sequence[bool], may_join: Sequence[bool], turns: Sequence[int], max_len: int
) -> list[int]:
    """Index of the first token of each token's segment, -1 outside segments."""
    starts = [-1] * len(is_anchor)
    current = -1
    for i, anchor in enumerate(is_anchor):
        goes_on = (
            current >= 0 and turns[i] == turns[current] and may_join[i] and i - current < max_len
        )
        if not goes_on:
            current = i if anchor else -1
        starts[i] = current
    return starts


def _numbered(starts: Sequence[int]) -> list[int]:
    """Number of each token's segment in the order of the row, -1 outside segments."""
    order = {start: number for number, start in enumerate(sorted(set(starts) - {-1}))}
    return [order.get(start, -1) for start in starts]


def quantile(values: Sequence[float], q: float) -> float:
    """Linear interpolation at rank (n - 1) q; exactly the order statistic at an integer rank."""
    ordered = sorted(values)
    rank = (len(ordered) - 1) * q
    if abs(rank - round(rank)) < _NEARLY_INTEGER:
        return ordered[round(rank)]
    low, high = ordered[math.floor(rank)], ordered[math.ceil(rank)]
    return low if low == high else low + (high - low) * (rank - math.floor(rank))
