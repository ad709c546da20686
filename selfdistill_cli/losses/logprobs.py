"""Log-probabilities and entropies of sampled tokens, without a tensor of tokens x vocabulary."""

from __future__ import annotations

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

LOGITS_PER_CHUNK = 2**26
"""Logits that exist at one time: 256 MiB in float32."""


def align_to_tokens(outputs_BT: torch.Tensor) -> torch.Tensor:
    """Shift model outputs [B,T,...] so that position t is about token t; zeros at t = 0.

    A causal model's output at position t-1 predicts token t. No other function shifts.
    """
    shifted = torch.zeros_like(outputs_BT)
    shifted[:, 1:] = outputs_BT[:, :-1]
    return shifted


def token_statistics(
    hidden_BTH: torch.Tensor,
    unembedding_VH: torch.Tensor,
    bias_V: torch.Tensor | None,
    token_ids_BT: torch.Tensor,
    active_BT: torch.Tensor,
    *,
    temperature: float = 1.0,
    need_entropy: bool = False,
    chunk_size: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return (log-probability of each active token [B,T], entropy in nats [B,T] or None).

    `hidden_BTH` is the model's raw last hidden state; this function aligns it. Results are 0 at
    inactive positions, whose hidden states are never read. The product with the unembedding runs
    in the dtype of its inputs, as it does during sampling; what follows is in float32 at least.
    `chunk_size` counts tokens (default: as many as give `LOGITS_PER_CHUNK`); with more than one
    chunk, logits are computed again in the backward pass and never kept. Logits of -inf (padding of
    the vocabulary) have probability 0. No active token gives zeros that are connected to the graph.
    """
    num_rows, length = token_ids_BT.shape
    source_BT = align_to_tokens(
        torch.arange(num_rows * length, device=hidden_BTH.device).view(num_rows, length)
    )
    chosen_BT = active_BT.bool().clone()
    chosen_BT[:, :1] = False  # the first token of a row has no prediction
    hidden_NH = hidden_BTH.flatten(0, 1)[source_BT[chosen_BT]]
    ids_N = token_ids_BT[chosen_BT]
    size = chunk_size or max(1, LOGITS_PER_CHUNK // unembedding_VH.shape[0])
    chunks = list(zip(hidden_NH.split(size), ids_N.split(size), strict=True))
    recompute = len(chunks) > 1 and torch.is_grad_enabled()
    results: list[tuple[torch.Tensor, torch.Tensor | None]] = []
    for hidden, ids in chunks:
        inputs = (hidden, unembedding_VH, bias_V, ids, temperature, need_entropy)
        if recompute:
            results.append(checkpoint(_chunk_statistics, *inputs, use_reentrant=False))
        else:
            results.append(_chunk_statistics(*inputs))
    logprobs_BT = _spread([logprobs for logprobs, _ in results], chosen_BT)
    entropies = [entropy for _, entropy in results if entropy is not None]
    return logprobs_BT, _spread(entropies, chosen_BT) if need_entropy else None


def _chunk_statistics(
    hidden_NH: torch.Tensor,
    unembedding_VH: torch.Tensor,
    bias_V: torch.Tensor | None,
    ids_N: torch.Tensor,
    temperature: float,
    need_entropy: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    logits_NV = functional.linear(hidden_NH, unembedding_VH, bias_V)
    if logits_NV.dtype in (torch.bfloat16, torch.float16):
        logits_NV = logits_NV.float()
    log_p_NV = torch.log_softmax(logits_NV / temperature, dim=-1)
    logprobs_N = log_p_NV.gather(-1, ids_N[:, None]).squeeze(-1)
    if not need_entropy:
        return logprobs_N, None
    # 0 * log 0 = 0: the factor is made finite first, or the gradient would be nan.
    finite_NV = log_p_NV.masked_fill(log_p_NV == -torch.inf, 0.0)
    return logprobs_N, -(log_p_NV.exp() * finite_NV).sum(-1)


def _spread(parts: list[torch.Tensor], chosen_BT: torch.Tensor) -> torch.Tensor:
    """Put [N] values, given in parts, at the chosen positions of [B,T]; 0 elsewhere."""
    values_N = torch.cat(parts)
    out_BT = torch.zeros(chosen_BT.shape, dtype=values_N.dtype, device=values_N.device)
    return out_BT.masked_scatter(chosen_BT, values_N)
