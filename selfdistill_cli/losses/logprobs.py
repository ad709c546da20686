"""Log-probabilities and entropies of sampled tokens, without a tensor of tokens x vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

LOGITS_PER_CHUNK = 2**25
"""Logits that exist at one time: 128 MiB in float32, and work on them needs two to three times."""


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
    `chunk_size` counts tokens (default: as many as give `LOGITS_PER_CHUNK` logits). Logits are
    computed again in the backward pass and never kept. Logits of -inf (padding of the vocabulary)
    have probability 0. Without an active token the zeros are still connected to the graph.
    """
    num_rows, length = token_ids_BT.shape
    source_BT = align_to_tokens(
        torch.arange(num_rows * length, device=hidden_BTH.device).view(num_rows, length)
    )
    chosen_BT = active_BT.bool().clone()
    chosen_BT[:, :1] = False  # the first token of a row has no prediction
    size = chunk_size or max(1, LOGITS_PER_CHUNK // unembedding_VH.shape[0])
    outputs: tuple[torch.Tensor, torch.Tensor] = _RowStatistics.apply(
        hidden_BTH.flatten(0, 1)[source_BT[chosen_BT]],
        unembedding_VH,
        bias_V,
        token_ids_BT[chosen_BT],
        temperature,
        need_entropy,
        size,
    )
    logprobs_N, entropy_N = outputs
    logprobs_BT = _spread(logprobs_N, chosen_BT)
    return logprobs_BT, _spread(entropy_N, chosen_BT) if need_entropy else None


class _RowStatistics(torch.autograd.Function):
    """Log-probability of one id per row [N], and the row's entropy [N] ([0] if not needed).

    Written by hand because autograd adds the chunks' gradients of the unembedding in its own
    dtype, where bfloat16 loses small ones; here they are added in float32. It also takes less
    memory than recomputation by `torch.utils.checkpoint` (96 to 173 MB at 4096 tokens, 16000
    entries, 256 tokens per chunk, with entropy).
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: torch.Tensor,
        unembedding_VH: torch.Tensor,
        bias_V: torch.Tensor | None,
        ids_N: torch.Tensor,
        temperature: float,
        need_entropy: bool,
        size: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        logprobs: list[torch.Tensor] = []
        entropies: list[torch.Tensor] = []
        for hidden, ids in zip(hidden_NH.split(size), ids_N.split(size), strict=True):
            log_p = log_softmax(hidden, unembedding_VH, bias_V, temperature)
            logprobs.append(log_p.gather(-1, ids[:, None]).squeeze(-1))
            if need_entropy:
                entropies.append(row_entropy(log_p))
            del log_p  # or the next chunk's logits are made while these are still there
        logprobs_N = torch.cat(logprobs)
        entropy_N = torch.cat(entropies) if need_entropy else logprobs_N.new_zeros(0)
        ctx.save_for_backward(hidden_NH, unembedding_VH, bias_V, ids_N, entropy_N)
        ctx.temperature, ctx.need_entropy, ctx.size = temperature, need_entropy, size
        return logprobs_N, entropy_N

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        hidden_NH, unembedding_VH, bias_V, ids_N, entropy_N = ctx.saved_tensors

        def gradient(rows: slice, log_p: torch.Tensor) -> torch.Tensor:
            grad_entropy = (entropy_N[rows], grads[1][rows]) if ctx.need_entropy else None
            return _logits_gradient(log_p, ids_N[rows], grads[0][rows], grad_entropy)

        found = chunked_gradients(ctx, hidden_NH, unembedding_VH, bias_V, gradient)
        return *found, None, None, None, None


def chunked_gradients(
    ctx: Any,
    hidden_NH: torch.Tensor,
    unembedding_VH: torch.Tensor,
    bias_V: torch.Tensor | None,
    gradient: Callable[[slice, torch.Tensor], torch.Tensor],
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """Gradients of hidden states, unembedding and bias, a chunk of rows at a time.

    `gradient(rows, log_p)` is d loss / d (logits / temperature) [n,V]; it may write over `log_p`.
    `ctx` knows `size`, `temperature` and which inputs want a gradient. Chunks are added in float32
    at least.
    """
    wants_hidden, wants_unembedding, wants_bias = ctx.needs_input_grad[:3]
    wide = torch.promote_types(unembedding_VH.dtype, torch.float32)
    grad_hidden_NH = torch.empty_like(hidden_NH) if wants_hidden else None
    grad_VH = torch.zeros_like(unembedding_VH, dtype=wide) if wants_unembedding else None
    grad_V = None
    if bias_V is not None and wants_bias:
        grad_V = torch.zeros_like(bias_V, dtype=wide)
    for start in range(0, len(hidden_NH), ctx.size):
        rows = slice(start, start + ctx.size)
        hidden = hidden_NH[rows]
        grad = gradient(rows, log_softmax(hidden, unembedding_VH, bias_V, ctx.temperature))
        grad.div_(ctx.temperature)
        if grad_V is not None:
            grad_V += grad.sum(0)
        grad = grad.to(unembedding_VH.dtype)
        if grad_hidden_NH is not None:
            grad_hidden_NH[rows] = grad @ unembedding_VH
        if grad_VH is not None:
            grad_VH += grad.T @ hidden
        del grad
    grad_VH = None if grad_VH is None else grad_VH.to(unembedding_VH.dtype)
    if grad_V is not None and bias_V is not None:
        grad_V = grad_V.to(bias_V.dtype)
    return grad_hidden_NH, grad_VH, grad_V


def log_softmax(
    hidden_NH: torch.Tensor,
    unembedding_VH: torch.Tensor,
    bias_V: torch.Tensor | None,
    temperature: float,
) -> torch.Tensor:
    """Log-probabilities of every entry [N,V], in float32 at least."""
    logits_NV = functional.linear(hidden_NH, unembedding_VH, bias_V)
    logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
    return torch.log_softmax(logits_NV.div_(temperature), dim=-1)


def _logits_gradient(
    log_p_NV: torch.Tensor,
    ids_N: torch.Tensor,
    grad_logprobs_N: torch.Tensor,
    entropy: tuple[torch.Tensor, torch.Tensor] | None,
) -> torch.Tensor:
    """d/dz: log p_id gives onehot - p; the entropy H gives -p (log p + H). Writes over `log_p_NV`.

    In place, because every tensor of this size adds a chunk to the peak.
    """
    grad_NV = log_p_NV.exp()
    factor: torch.Tensor = grad_logprobs_N[:, None]
    if entropy is not None:
        entropy_N, grad_entropy_N = entropy
        factor = finite_(log_p_NV).add_(entropy_N[:, None])
        factor = factor.mul_(grad_entropy_N[:, None]).add_(grad_logprobs_N[:, None])
    grad_NV.mul_(factor).neg_()
    return grad_NV.scatter_add_(-1, ids_N[:, None], grad_logprobs_N[:, None])


def row_entropy(log_p_NV: torch.Tensor) -> torch.Tensor:
    """Entropy of each row in nats [N]. Writes over `log_p_NV`."""
    p_NV = log_p_NV.exp()
    return -p_NV.mul_(finite_(log_p_NV)).sum(-1)


def finite_(log_p_NV: torch.Tensor) -> torch.Tensor:
    """0 * log 0 = 0: the second factor is made finite, in place, before it is multiplied."""
    return log_p_NV.masked_fill_(log_p_NV == -torch.inf, 0.0)


def _spread(values_N: torch.Tensor, chosen_BT: torch.Tensor) -> torch.Tensor:
    """Put values at the chosen positions of [B,T]; 0 elsewhere."""
    out_BT = torch.zeros(chosen_BT.shape, dtype=values_N.dtype, device=values_N.device)
    return out_BT.masked_scatter(chosen_BT, values_N)
