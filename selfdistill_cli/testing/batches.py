"""Micro-batches and policy outputs as a term meets them, clean and with nan where none may look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch

from selfdistill_cli.core.needs import DivergenceNeed, LayerNeed, Need
from selfdistill_cli.core.types import Batch, PolicyOutput, Sample, ViewBatch
from selfdistill_cli.testing.material import HIDDEN, random_row

CREDIT = "credit"
"""Name under which a credit leaves its weights."""


def make_batch(
    samples: Sequence[Sample],
    *,
    views: Sequence[str] = (),
    needs: frozenset[Need] = frozenset(),
    weights: Mapping[str, Sequence[np.ndarray]] | None = None,
) -> Batch:
    """Pad samples on the right [B,T]; rows 0 and 1, 2 and 3 are pairs of a better and a worse one.

    Advantages have random magnitudes.
    """
    rng = np.random.default_rng(len(samples))
    masks = [sample.action_mask for sample in samples]
    length = max(map(len, masks))
    paired = len(samples) - len(samples) % 2
    signs = [1.0 if row % 2 == 0 else -1.0 for row in range(len(samples))]

    def floats(rows: Sequence[np.ndarray]) -> torch.Tensor:
        return padded([row.astype(np.float32) for row in rows], length)

    def drawn(scale: float = 1.0) -> torch.Tensor:
        return floats([scale * random_row(rng, mask) for mask in masks])

    old = floats([sample.sampled_logprobs for sample in samples])
    return Batch(
        token_ids=padded([sample.token_ids for sample in samples], length),
        attention_mask=padded([np.ones(len(mask), dtype=bool) for mask in masks], length),
        action_mask=padded(masks, length),
        advantages=floats(
            [sign * np.abs(random_row(rng, m)) for sign, m in zip(signs, masks, strict=True)]
        ),
        old_logprobs=old,
        old_values=drawn(),
        returns=drawn(),
        weights={name: floats(rows) for name, rows in (weights or {}).items()},
        views={name: _view(name, needs, old, drawn(0.5)) for name in views},
        pairs=torch.tensor([row // 2 if row < paired else -1 for row in range(len(samples))]),
    )


def _view(name: str, needs: frozenset[Need], old: torch.Tensor, gap: torch.Tensor) -> ViewBatch:
    random = torch.Generator().manual_seed(11)
    layers = {
        need: torch.randn(*old.shape, len(need.layers), HIDDEN, generator=random)
        for need in needs
        if isinstance(need, LayerNeed) and need.view == name
    }
    return ViewBatch(logprobs=(old + gap).clamp(max=0.0), layers=layers)


def make_output(batch: Batch, needs: frozenset[Need]) -> PolicyOutput:
    """What a student near the sampling policy says, with exactly what was asked for.

    Every tensor is a leaf that takes a gradient, 0 at inactive positions.
    """
    random = torch.Generator().manual_seed(5)
    mask = batch.action_mask

    def drawn(*extra: int) -> torch.Tensor:
        values = torch.randn(*mask.shape, *extra, generator=random)
        return torch.where(widened(mask, values), values, torch.zeros(()))

    def leaf(values: torch.Tensor) -> torch.Tensor:
        return values.detach().clone().requires_grad_()

    wants_values = bool(needs & {"values", "values_detached"})
    return PolicyOutput(
        logprobs=leaf((batch.old_logprobs + 0.4 * drawn()).clamp(max=0.0)),
        entropy=leaf(drawn().abs()) if "entropy" in needs else None,
        values=leaf(drawn()) if wants_values else None,
        hidden=leaf(drawn(HIDDEN)) if "hidden" in needs else None,
        divergences={n: leaf(drawn().abs()) for n in needs if isinstance(n, DivergenceNeed)},
        layers={n: leaf(drawn(len(n.layers), HIDDEN)) for n in needs if isinstance(n, LayerNeed)},
    )


def poisoned(value: Any, mask: torch.Tensor) -> Any:
    """A batch or output with nan at inactive positions of every floating tensor [B,T,...]."""
    if isinstance(value, torch.Tensor):
        if not value.is_floating_point() or value.shape[:2] != mask.shape:
            return value
        changed = torch.where(widened(mask, value), value.detach(), torch.tensor(float("nan")))
        return changed.requires_grad_(value.requires_grad)
    return _mapped(value, lambda item: poisoned(item, mask))


def rows_of(value: Any, rows: torch.Tensor, num_rows: int) -> Any:
    """Some rows of a batch or output whose tensors have B rows; new leaves."""
    if isinstance(value, torch.Tensor):
        if len(value) != num_rows:
            return value
        return value.detach()[rows].clone().requires_grad_(value.requires_grad)
    return _mapped(value, lambda item: rows_of(item, rows, num_rows))


def widened_by(value: Any, columns: int, shape: torch.Size) -> Any:
    """A batch or output with columns of padding in every tensor [B,T,...]; new leaves."""
    if isinstance(value, torch.Tensor):
        if value.shape[:2] != shape:
            return value
        zeros = torch.zeros(value.shape[0], columns, *value.shape[2:], dtype=value.dtype)
        wide = torch.cat([value.detach(), zeros], dim=1)
        return wide.requires_grad_(value.requires_grad)
    return _mapped(value, lambda item: widened_by(item, columns, shape))


def without_actions(batch: Batch) -> Batch:
    """An empty micro-batch: rows of which no token counts and nothing is known."""
    return replace(
        batch,
        action_mask=torch.zeros_like(batch.action_mask),
        pairs=torch.full_like(batch.pairs, -1),
    )


def leaves(output: PolicyOutput) -> dict[str, torch.Tensor]:
    """Every tensor of an output, by name."""
    found: dict[str, torch.Tensor] = {}
    for field in fields(output):
        value = getattr(output, field.name)
        if isinstance(value, torch.Tensor):
            found[field.name] = value
        elif isinstance(value, Mapping):
            found |= {f"{field.name}[{i}]": t for i, t in enumerate(value.values())}
    return found


def _mapped(value: Any, change: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: change(item) for key, item in value.items()}
    if isinstance(value, Batch | PolicyOutput | ViewBatch):
        return replace(value, **{f.name: change(getattr(value, f.name)) for f in fields(value)})
    return value


def padded(rows: Sequence[np.ndarray], length: int) -> torch.Tensor:
    """[B,T] with zeros on the right."""
    out = np.zeros((len(rows), length), dtype=rows[0].dtype)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return torch.from_numpy(out)


def widened(mask: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A mask [B,T] with as many dimensions as `like` [B,T,...]."""
    return mask.reshape(*mask.shape, *[1] * (like.ndim - mask.ndim))
