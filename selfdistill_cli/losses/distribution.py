"""Divergences between two distributions over the vocabulary, a chunk of tokens at a time.

The teacher is known in full, or by some entries and the mass of the rest (one more bucket, the
tail). The generalised Jensen-Shannon divergence is that of arXiv 2306.13649.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch

from selfdistill_cli.losses.logprobs import (
    LOGITS_PER_CHUNK,
    chunked_gradients,
    finite_,
    log_softmax,
    row_entropy,
)

Kind = Literal["forward", "reverse", "jsd"]


@dataclass(frozen=True, kw_only=True)
class FullTeacher:
    """A teacher whose logits are made in chunks; its hidden size may differ from the student's."""

    hidden_NH: torch.Tensor
    """[N,H] hidden states that predict the tokens."""
    unembedding_VH: torch.Tensor
    """[V,H] the same vocabulary as the student's."""
    bias_V: torch.Tensor | None
    """[V] or None."""


@dataclass(frozen=True, kw_only=True)
class TopTeacher:
    """A teacher known at K entries of each row; the others form one bucket."""

    ids_NK: torch.Tensor
    """[N,K] int64, different entries in each row, in ascending order."""
    logprobs_NK: torch.Tensor
    """[N,K] log-probabilities of these entries."""
    tail_N: torch.Tensor
    """[N] log-mass of all other entries, -inf if there is none."""


Teacher = FullTeacher | TopTeacher


def divergence(
    hidden_NH: torch.Tensor,
    unembedding_VH: torch.Tensor,
    bias_V: torch.Tensor | None,
    teacher: Teacher,
    *,
    kind: Kind,
    alpha: float | None,
    temperature: float,
    chunk_size: int | None = None,
) -> torch.Tensor:
    """Divergence of each row in nats [N]; gradient to the student's three tensors only.

    With S and T the softmax of logits / temperature: forward: KL(T || S); reverse: KL(S || T);
    jsd: (1-alpha) KL(S || M) + alpha KL(T || M) with M = (1-alpha) S + alpha T, where alpha 0
    means forward and 1 reverse, which are not its limits. There is no factor temperature^2, and a
    `TopTeacher` must be of the same temperature. 0 log 0 = 0. Logits are computed again in the
    backward pass; what follows them is in float32 at least. `chunk_size` counts rows (default: as
    many as give `LOGITS_PER_CHUNK` logits, the teacher's included).
    """
    share = _share(kind, alpha)
    num_distributions = 2 if isinstance(teacher, FullTeacher) else 1
    size = chunk_size or _chunk_size(unembedding_VH, num_distributions)
    out_N: torch.Tensor = _Divergence.apply(
        hidden_NH, unembedding_VH, bias_V, teacher, share, temperature, size
    )
    return out_N


@torch.no_grad()
def top_teacher(
    hidden_NH: torch.Tensor,
    unembedding_VH: torch.Tensor,
    bias_V: torch.Tensor | None,
    *,
    temperature: float,
    k: int | None = None,
    ids_NK: torch.Tensor | None = None,
    chunk_size: int | None = None,
) -> TopTeacher:
    """Log-probabilities at the `k` largest entries or at given ids, and the log-mass of the rest.

    Exactly one of `k` (ties go to the lowest id; at most the whole vocabulary) and `ids_NK`
    (different ids in each row; sorted here) is given. The tail is a log-sum-exp of the other
    entries, because 1 - sum loses it. No gradient.
    """
    assert (k is None) != (ids_NK is None), "give either k or ids_NK"
    size = chunk_size or _chunk_size(unembedding_VH, 1)
    parts: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
    for start in range(0, max(1, len(hidden_NH)), size):
        rows = slice(start, start + size)
        log_p = log_softmax(hidden_NH[rows], unembedding_VH, bias_V, temperature)
        ids = _largest(log_p, k) if ids_NK is None else ids_NK[rows].sort(-1).values
        parts.append((ids, *_buckets(log_p, ids)))
    ids, logprobs, tails = (torch.cat(x) for x in zip(*parts, strict=True))
    return TopTeacher(ids_NK=ids, logprobs_NK=logprobs, tail_N=tails.squeeze(-1))


@torch.no_grad()
def top_ids(
    hidden_NH: torch.Tensor,
    unembedding_VH: torch.Tensor,
    bias_V: torch.Tensor | None,
    k: int,
    chunk_size: int | None = None,
) -> torch.Tensor:
    """Ids of the `k` largest logits of each row, int64 [N,K] ascending; ties to the lowest id."""
    size = chunk_size or _chunk_size(unembedding_VH, 1)
    return torch.cat(
        [
            _largest(log_softmax(hidden, unembedding_VH, bias_V, 1.0), k)
            for hidden in hidden_NH.split(size)
        ]
    )


class _Divergence(torch.autograd.Function):
    """Divergence of each row [N]; the unembedding's gradient is added in float32 over chunks."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: torch.Tensor,
        unembedding_VH: torch.Tensor,
        bias_V: torch.Tensor | None,
        teacher: Teacher,
        share: float,
        temperature: float,
        size: int,
    ) -> torch.Tensor:
        values: list[torch.Tensor] = []
        for start in range(0, max(1, len(hidden_NH)), size):
            rows = slice(start, start + size)
            log_s = log_softmax(hidden_NH[rows], unembedding_VH, bias_V, temperature)
            values.append(_value(*_common_support(log_s, teacher, rows, temperature), share))
            del log_s  # or the next chunk's logits are made while these are still there
        ctx.save_for_backward(hidden_NH, unembedding_VH, bias_V)
        ctx.teacher, ctx.share, ctx.temperature, ctx.size = teacher, share, temperature, size
        return torch.cat(values)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        def gradient(rows: slice, log_s: torch.Tensor) -> torch.Tensor:
            grad = _logits_gradient(log_s, ctx.teacher, rows, ctx.temperature, ctx.share)
            return grad.mul_(grads[0][rows][:, None])

        hidden_NH, unembedding_VH, bias_V = ctx.saved_tensors
        found = chunked_gradients(ctx, hidden_NH, unembedding_VH, bias_V, gradient)
        return *found, None, None, None, None


def _share(kind: Kind, alpha: float | None) -> float:
    """The teacher's share alpha of the mixture; 0 stands for forward and 1 for reverse."""
    if kind != "jsd":
        return {"forward": 0.0, "reverse": 1.0}[kind]
    assert alpha is not None, "jsd needs alpha"
    assert 0.0 <= alpha <= 1.0, "alpha is a share"
    return alpha


def _chunk_size(unembedding_VH: torch.Tensor, num_distributions: int) -> int:
    return max(1, LOGITS_PER_CHUNK // (num_distributions * unembedding_VH.shape[0]))


def _common_support(
    log_s_NV: torch.Tensor, teacher: Teacher, rows: slice, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities of student and teacher over the same entries: V of them, or K + tail."""
    if isinstance(teacher, FullTeacher):
        head = teacher.unembedding_VH, teacher.bias_V
        return log_s_NV, log_softmax(teacher.hidden_NH[rows], *head, temperature)
    log_t = torch.cat([teacher.logprobs_NK[rows], teacher.tail_N[rows, None]], -1)
    return torch.cat(_buckets(log_s_NV, teacher.ids_NK[rows]), -1), log_t.to(log_s_NV.dtype)


def _buckets(log_p_NV: torch.Tensor, ids_NK: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities at the ids [N,K] and the log-mass of all others [N,1]."""
    outside_NV = log_p_NV.scatter(-1, ids_NK, -torch.inf)
    return log_p_NV.gather(-1, ids_NK), outside_NV.logsumexp(-1, keepdim=True)


def _value(log_s: torch.Tensor, log_t: torch.Tensor, share: float) -> torch.Tensor:
    if share == 0.0:
        return _weighted_ratio(log_t, log_s).sum(-1)
    if share == 1.0:
        return _weighted_ratio(log_s, log_t).sum(-1)
    log_m = _log_mixture(log_s, log_t, share)
    student = _weighted_ratio(log_s, log_m).sum(-1)
    return (1.0 - share) * student + share * _weighted_ratio(log_t, log_m).sum(-1)


def _weighted_ratio(log_p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
    """p (log p - log q), and 0 where p = 0."""
    return (log_p - log_q).mul_(log_p.exp()).masked_fill_(log_p == -torch.inf, 0.0)


def _log_mixture(log_s: torch.Tensor, log_t: torch.Tensor, share: float) -> torch.Tensor:
    student = log_s + math.log1p(-share)
    return torch.logaddexp(student, log_t + math.log(share), out=student)


def _logits_gradient(
    log_s_NV: torch.Tensor, teacher: Teacher, rows: slice, temperature: float, share: float
) -> torch.Tensor:
    """d/dz = S_v (g_v - sum_u S_u g_u), where entries of the tail share the tail's g."""
    log_s, log_t = _common_support(log_s_NV, teacher, rows, temperature)
    slope = _weighted_slope(log_s, log_t, share)
    total = slope.sum(-1, keepdim=True)
    if isinstance(teacher, TopTeacher):
        # Without a tail every entry outside the ids has probability 0, and so a share of 0.
        within_tail = (log_s_NV - finite_(log_s[:, -1:])).exp_()
        slope_NV = within_tail.mul_(slope[:, -1:])
        slope = slope_NV.scatter_(-1, teacher.ids_NK[rows], slope[:, :-1])
    return slope.sub_(log_s_NV.exp().mul_(total))


def _weighted_slope(log_s: torch.Tensor, log_t: torch.Tensor, share: float) -> torch.Tensor:
    """S g with g = -T/S (forward), log S - log T (reverse), (1-alpha)(log S - log M) (jsd)."""
    if share == 0.0:
        return log_t.exp().neg_()
    if share == 1.0:
        return _weighted_ratio(log_s, log_t)
    return _weighted_ratio(log_s, _log_mixture(log_s, log_t, share)).mul_(1.0 - share)


def _largest(log_p_NV: torch.Tensor, k: int | None) -> torch.Tensor:
    """Ids of the k largest entries, ascending; `torch.topk` alone leaves the order of ties open.

    nan counts as the smallest, so that every row has k ids.
    """
    assert k is not None
    assert k > 0, "top-k needs a positive k"
    k = min(k, log_p_NV.shape[-1])
    ranked_NV = log_p_NV.nan_to_num(nan=-torch.inf, neginf=-torch.inf)
    smallest_N1 = ranked_NV.topk(k, dim=-1).values[:, -1:]
    above_NV = ranked_NV > smallest_N1
    tied_NV = ranked_NV == smallest_N1
    free_N1 = k - above_NV.sum(-1, keepdim=True)
    tied_NV &= tied_NV.cumsum(-1, dtype=torch.int32) <= free_N1
    return (above_NV | tied_NV).nonzero()[:, 1].view(-1, k)


@torch.no_grad()
def entropy(
    hidden_NH: torch.Tensor,
    unembedding_VH: torch.Tensor,
    bias_V: torch.Tensor | None,
    *,
    temperature: float,
    chunk_size: int | None = None,
) -> torch.Tensor:
    """Entropy of each row's distribution in nats [N], without gradient."""
    size = chunk_size or _chunk_size(unembedding_VH, 1)
    parts: list[torch.Tensor] = []
    for start in range(0, max(1, len(hidden_NH)), size):
        hidden = hidden_NH[start : start + size]
        log_p = log_softmax(hidden, unembedding_VH, bias_V, temperature)
        parts.append(row_entropy(log_p))
        del log_p
    return torch.cat(parts)
