"""From logits and uniform numbers to token ids."""

from __future__ import annotations

import torch


def choose(
    logits_BV: torch.Tensor, uniforms_B: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (ids [B], their log-probabilities [B]) at the temperature.

    Inverse of the cumulative distribution, summed in float64: id v is chosen if the uniform number
    (float64, in [0, 1)) falls into v's share of [0, 1). An id of probability 0 is never chosen.
    Temperature 0 takes the likeliest id, with its log-probability at temperature 1.
    """
    logprobs_BV = torch.log_softmax(logits_BV / (temperature or 1.0), dim=-1)
    if temperature == 0:
        ids_B = logits_BV.argmax(-1)
    else:
        cumulative_BV = logprobs_BV.exp().cumsum(-1, dtype=torch.float64)
        threshold_B1 = uniforms_B[:, None] * cumulative_BV[:, -1:]
        ids_B = torch.searchsorted(cumulative_BV, threshold_B1, right=True).squeeze(1)
        ids_B = ids_B.clamp(max=logits_BV.shape[1] - 1)
    return ids_B, logprobs_BV.gather(1, ids_B[:, None]).squeeze(1)
