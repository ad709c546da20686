"""Samples to padded tensors, and a collection to updates and micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch

from selfdistill_cli.batching.settings import BatchSettings
from selfdistill_cli.core.seeds import Key, stream
from selfdistill_cli.core.types import Batch, Sample, ViewBatch, ViewScores

Unembedding = tuple[torch.Tensor, torch.Tensor | None]
Unit = list[Sample]
"""Samples that stay together."""


def collate(
    samples: Sequence[Sample],
    term_names: Iterable[str] | None = None,
    view_names: Iterable[str] | None = None,
    device: torch.device | str | None = None,
    unembeddings: Mapping[str, Unembedding] | None = None,
) -> Batch:
    """Pad samples on the right to one micro-batch [B,T]; T is the longest sample.

    Absent arrays are 0 and absent weights 1; padding is inactive in every mask. Old log-probs fall
    back to the recorded ones. `term_names` and `view_names` default to those that the samples
    have; a view that is asked for must be in every sample, because no number could stand for it.
    `unembeddings` gives the matrices that belong to the hidden states of views.
    """
    if not samples:
        raise ValueError("a micro-batch needs at least one sample")
    terms = _names(samples, "weights") if term_names is None else list(term_names)
    views = _names(samples, "views") if view_names is None else list(view_names)
    _check_views(samples, views)
    pad = _Padding(max(len(sample.token_ids) for sample in samples), device)
    heads = unembeddings or {}
    return Batch(
        token_ids=pad.integers([s.token_ids for s in samples]),
        attention_mask=pad.bools([np.ones(len(s.token_ids), dtype=np.bool_) for s in samples]),
        action_mask=pad.bools([s.action_mask for s in samples]),
        advantages=pad.floats([s.advantages for s in samples]),
        old_logprobs=pad.floats(
            [s.sampled_logprobs if s.old_logprobs is None else s.old_logprobs for s in samples]
        ),
        old_values=pad.floats([s.values for s in samples]),
        returns=pad.floats([s.returns for s in samples]),
        weights={n: pad.floats([s.weights.get(n) for s in samples], fill=1.0) for n in terms},
        views={n: _view_batch([s.views[n] for s in samples], pad, heads.get(n)) for n in views},
        pairs=torch.tensor([s.pair for s in samples], device=device),
    )


def _check_views(samples: Sequence[Sample], views: Sequence[str]) -> None:
    for name in views:
        missing = sum(name not in sample.views for sample in samples)
        if missing:
            raise ValueError(
                f"view {name!r} was not scored for {missing} of {len(samples)} samples"
            )


class _Padding:
    """Stacks ragged rows as tensors of one length on one device."""

    def __init__(self, length: int, device: torch.device | str | None):
        self.length = length
        self.device = device

    def floats(self, rows: Sequence[np.ndarray | None], fill: float = 0.0) -> torch.Tensor:
        """[B,T,...] float32; an absent row is all `fill`."""
        return _padded(rows, self.length, fill, np.float32, self.device)

    def integers(self, rows: Sequence[np.ndarray]) -> torch.Tensor:
        """[B,T,...] int64."""
        return _padded(rows, self.length, 0, np.int64, self.device)

    def bools(self, rows: Sequence[np.ndarray]) -> torch.Tensor:
        """[B,T] bool."""
        return _padded(rows, self.length, False, np.bool_, self.device)


def _view_batch(
    rows: Sequence[ViewScores], pad: _Padding, unembedding: Unembedding | None
) -> ViewBatch:
    tops = {}
    for need in rows[0].tops:
        found = [row.tops[need] for row in rows]
        ids = pad.integers([top.ids for top in found])
        logprobs, tail = [top.logprobs for top in found], [top.tail for top in found]
        tops[need] = ids, pad.floats(logprobs), pad.floats(tail)
    return ViewBatch(
        logprobs=pad.floats([row.logprobs for row in rows]),
        hidden=None if rows[0].hidden is None else pad.floats([row.hidden for row in rows]),
        unembedding=unembedding,
        tops=tops,
        layers={need: pad.floats([row.layers[need] for row in rows]) for need in rows[0].layers},
    )


def updates(
    samples: Sequence[Sample],
    settings: BatchSettings,
    seed_key: Sequence[Key],
    keep_together: Sequence[int] | None = None,
    mine: Callable[[Sequence[Unit], Sequence[float]], Sequence[Unit]] | None = None,
) -> Iterator[list[list[Sample]]]:
    """Yield the updates of a collection: each one a list of micro-batches of samples.

    Every epoch goes through all samples once, in a new order keyed by `seed_key` and the epoch,
    in `mini_batches` updates of nearly equal size (fewer if there are fewer samples, never an
    empty one). `keep_together` gives a group number per sample: samples of one group are then
    never divided between updates or micro-batches. `mine(units, costs)` picks what of an update
    falls to this process; the number of updates is the same for all of them.
    """
    units = _units(len(samples), keep_together)
    for epoch in range(settings.epochs):
        order = stream(*seed_key, "epoch", epoch).permutation(len(units))
        num_updates = min(settings.mini_batches, len(units))
        for part in np.array_split(order, num_updates) if num_updates else []:
            chosen = [[samples[i] for i in units[u]] for u in part]
            if mine is not None:
                costs = [float(sum(len(s.token_ids) for s in unit)) for unit in chosen]
                chosen = mine(chosen, costs)
            yield micro_batches(chosen, settings)


def micro_batches(units: Sequence[Sequence[Sample]], settings: BatchSettings) -> list[list[Sample]]:
    """Pack units, sorted by length to save padding, within the limits of rows and tokens.

    A unit that exceeds a limit by itself gets a micro-batch of its own.
    """
    packed: list[list[Sample]] = []
    longest = 0
    for unit in sorted(units, key=_longest):
        longest = max(longest, _longest(unit))
        rows = len(packed[-1]) + len(unit) if packed else 0
        fits = rows <= settings.micro_batch_rows and rows * longest <= settings.micro_batch_tokens
        if packed and fits:
            packed[-1].extend(unit)
        else:
            packed.append(list(unit))
            longest = _longest(unit)
    return packed


def _units(count: int, keep_together: Sequence[int] | None) -> list[list[int]]:
    if keep_together is None:
        return [[i] for i in range(count)]
    found: dict[int, list[int]] = {}
    for i, group in zip(range(count), keep_together, strict=True):
        found.setdefault(group, []).append(i)
    return list(found.values())


def _longest(unit: Sequence[Sample]) -> int:
    return max(len(sample.token_ids) for sample in unit)


def _names(samples: Sequence[Sample], field: str) -> list[str]:
    return sorted({name for sample in samples for name in getattr(sample, field)})


def _padded(
    arrays: Sequence[np.ndarray | None],
    length: int,
    fill: float,
    dtype: type[np.generic],
    device: torch.device | str | None,
) -> torch.Tensor:
    extra = next((array.shape[1:] for array in arrays if array is not None), ())
    out = np.full((len(arrays), length, *extra), fill, dtype=dtype)
    for row, array in enumerate(arrays):
        if array is not None:
            out[row, : len(array)] = array
    return torch.from_numpy(out).to(device)
