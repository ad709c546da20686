"""Under whose weights is a view scored? The student's own, a copy's, or another model's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import torch

from selfdistill_cli.batching.collate import collate, micro_batches
from selfdistill_cli.core.needs import Needs
from selfdistill_cli.core.types import Batch, PolicyOutput, Sample
from selfdistill_cli.policies.causal import CausalPolicy
from selfdistill_cli.teachers.weight_copy import WeightCopy
from selfdistill_cli.training.engine import Engine

if TYPE_CHECKING:
    from selfdistill_cli.training.run import Run

MAX_SCORED_ROWS = 16
"""Rows of unlike length pad each other: without gradients, fewer at once are faster."""

Unembedding = tuple[torch.Tensor, torch.Tensor | None]


class Scorer(Protocol):
    """Scores without gradients and without dropout; the student's own mode is left alone."""

    together: bool
    """Whether all ranks must score the same number of batches, at the same time."""

    def in_place(self) -> AbstractContextManager[None]:
        """Everything below is called inside this block; under ZeRO 3 all ranks enter together."""
        ...

    def score(self, batch: Batch, needs: Needs) -> PolicyOutput: ...
    def unembedding(self) -> Unembedding:
        """Matrix [V,H] and bias [V] that turn hidden states into logits; stays as it is now."""
        ...


class StudentScorer:
    """The student as it is now."""

    together = False

    def __init__(self, engine: Engine):
        self.engine = engine

    def in_place(self) -> AbstractContextManager[None]:
        """It always is."""
        return nullcontext()

    def score(self, batch: Batch, needs: Needs) -> PolicyOutput:
        """Score a batch."""
        return self.engine.score(batch, needs)

    def unembedding(self) -> Unembedding:
        """Cloned, because the next update writes over the student's own."""
        return _cloned(self.engine.policy.unembedding())


class CopyScorer:
    """A copy's weights in the student's place."""

    def __init__(self, engine: Engine, copy: WeightCopy):
        self.together = engine.divides_weights
        self.engine = engine
        self.copy = copy

    def in_place(self) -> AbstractContextManager[None]:
        """Inside the block the copy's weights stand in the student's place."""
        return self.copy.scoring()

    def score(self, batch: Batch, needs: Needs) -> PolicyOutput:
        """Score a batch."""
        return self.engine.score_copy(batch, needs)

    def unembedding(self) -> Unembedding:
        """Cloned, because the copy moves."""
        return _cloned(self.engine.policy.unembedding())


class ModelScorer:
    """Another model with the same tokenizer, which never changes."""

    together = False

    def __init__(self, policy: CausalPolicy):
        self.policy = policy.eval().requires_grad_(False)

    def in_place(self) -> AbstractContextManager[None]:
        """It always is."""
        return nullcontext()

    @torch.no_grad()
    def score(self, batch: Batch, needs: Needs) -> PolicyOutput:
        """Score a batch."""
        return self.policy.score(batch, needs)

    def unembedding(self) -> Unembedding:
        """The model's own."""
        return self.policy.unembedding()


def _cloned(unembedding: Unembedding) -> Unembedding:
    weight, bias = unembedding
    return weight.detach().clone(), None if bias is None else bias.detach().clone()


def scored_rows(
    run: Run,
    samples: Sequence[Sample],
    needs: Needs,
    score: Callable[[Batch, Needs], PolicyOutput],
    filler: Sample | None = None,
) -> Iterator[tuple[int, PolicyOutput]]:
    """Score samples without gradients in micro-batches; yield (index, output [1,T]) of each.

    With a `filler` all ranks score the same number of batches: who has fewer scores that sample.
    """
    place = {id(sample): i for i, sample in enumerate(samples)}
    assert len(place) == len(samples), "every sample is an object of its own"
    batches = run.settings.batch
    limits = replace(batches, micro_batch_rows=min(batches.micro_batch_rows, MAX_SCORED_ROWS))
    parts = list(micro_batches([[sample] for sample in samples], limits))  # pyright: ignore
    missing = 0 if filler is None else max(run.world.gather(len(parts))) - len(parts)

    def scored(rows: Sequence[Sample]) -> PolicyOutput:
        batch = collate(rows, term_names=(), view_names=(), device=run.engine.device)
        return score(batch, needs)

    for rows in parts:
        output = scored(rows)
        for row, sample in enumerate(rows):
            yield place[id(sample)], _row(output, row, len(sample.token_ids))
    for _ in range(missing):
        assert filler is not None
        scored([filler])


def _row(output: PolicyOutput, row: int, length: int) -> PolicyOutput:
    def cut(x: torch.Tensor) -> torch.Tensor:
        return x[row : row + 1, :length].cpu()

    return PolicyOutput(
        logprobs=cut(output.logprobs),
        entropy=None if output.entropy is None else cut(output.entropy),
        values=None if output.values is None else cut(output.values),
        hidden=None if output.hidden is None else cut(output.hidden),
        layers={need: cut(x) for need, x in output.layers.items()},
    )
