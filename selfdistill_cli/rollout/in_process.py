"""Sampling in the training process: a batched decoding loop with a key-value cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.core.protocols import GenerationRequest
from selfdistill_cli.core.seeds import stream
from selfdistill_cli.core.types import Finish, Generation
from selfdistill_cli.rollout.sampling import choose
from selfdistill_cli.rollout.settings import InProcessSettings


class Steps(Protocol):
    """Sequences being extended, one id per row at a time."""

    hidden: torch.Tensor
    """[B,H] the state from which each row's next id is sampled."""

    def step(self, token_ids_B: torch.Tensor) -> None: ...
    def keep(self, rows: torch.Tensor) -> None: ...


class SteppedPolicy(Protocol):
    """What this rollout needs of a policy."""

    chat: Any

    @property
    def device(self) -> torch.device: ...
    @property
    def context_length(self) -> int | None: ...
    def modules(self) -> Iterator[torch.nn.Module]: ...
    def eval(self) -> Any: ...
    def stepper(self, prompts: Sequence[Sequence[int]], num_new: int) -> Steps: ...
    def unembedding(self) -> tuple[torch.Tensor, torch.Tensor | None]: ...


class InProcessRollout:
    """Implements `core.protocols.RolloutEngine` on a policy of this process.

    Equal prompts are read once. Rows that have finished leave the batch. A row draws one uniform
    number per token from its own stream, so its tokens depend neither on the other rows (up to
    the rounding of batched matrix products) nor on any state that a checkpoint would have to hold.
    """

    def __init__(self, settings: InProcessSettings, policy: SteppedPolicy):
        self.settings = settings
        self.policy = policy
        self.version = 0

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Note the version. The module is the student's own, so its weights are already here."""
        self.version = version

    @torch.no_grad()
    def generate(
        self,
        requests: Sequence[GenerationRequest],
        *,
        max_new_tokens: int,
        temperature: float,
        with_hidden: bool = False,
    ) -> list[Generation]:
        """Sample up to `max_new_tokens` ids for every request; answers are in request order.

        Temperature 0 takes the likeliest id and records log-probabilities at temperature 1.
        Raises ConfigError if a prompt and its new tokens exceed the model's context.
        """
        self._check_lengths(requests, max_new_tokens)
        order = sorted(range(len(requests)), key=lambda i: _prompt_key(requests[i]))
        found: dict[int, Generation] = {}
        with evaluating(self.policy):
            for start in range(0, len(order), self.settings.max_batch_rows):
                rows = order[start : start + self.settings.max_batch_rows]
                decoding = Decoding(
                    policy=self.policy,
                    requests=[requests[i] for i in rows],
                    max_new_tokens=max_new_tokens,
                    temperature=temperature,
                    with_hidden=with_hidden,
                )
                decoding.run(self.settings.compact_fraction)
                found.update(zip(rows, decoding.generations(), strict=True))
        return [found[i] for i in range(len(requests))]

    def _check_lengths(self, requests: Sequence[GenerationRequest], max_new_tokens: int) -> None:
        limit = self.policy.context_length
        longest = max((len(request.prompt_ids) for request in requests), default=0)
        if limit is not None and longest + max_new_tokens > limit:
            raise ConfigError(
                f"rollout.max_new_tokens={max_new_tokens}: with a prompt of {longest} tokens this "
                f"exceeds the model's {limit} positions; lower rollout.max_new_tokens or "
                f"rollout.max_context_tokens (at most {limit})"
            )


@contextmanager
def evaluating(policy: SteppedPolicy) -> Iterator[None]:
    """Evaluation mode inside the block; afterwards every sub-module has its own mode again."""
    modes = [(module, module.training) for module in policy.modules()]
    policy.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@dataclass(kw_only=True)
class _Step:
    """What one pass of the loop recorded of the rows that were still in the batch."""

    rows: torch.Tensor
    """[B] row of each entry."""
    ids: torch.Tensor
    """[B] sampled ids."""
    logprobs: torch.Tensor
    """[B] log-probabilities of the ids."""
    hidden: torch.Tensor | None
    """[B,H] hidden state from which each id was sampled."""


class Decoding:
    """One batch being decoded. N rows at the start, B of them still in the batch."""

    def __init__(
        self,
        *,
        policy: SteppedPolicy,
        requests: Sequence[GenerationRequest],
        max_new_tokens: int,
        temperature: float,
        with_hidden: bool,
    ):
        self.policy = policy
        self.requests = requests
        self.max_new_tokens = max_new_tokens
        self.temperature = temperature
        self.with_hidden = with_hidden
        self.stops = torch.tensor(sorted(policy.chat.stop_ids), device=policy.device)
        self.lengths = torch.zeros(len(requests), dtype=torch.long)
        self.stopped = torch.zeros(len(requests), dtype=torch.bool)
        self.steps: list[_Step] = []
        self.rows = torch.arange(len(requests))
        self.uniforms = torch.from_numpy(self._draw()).to(policy.device)

    def run(self, compact_fraction: float) -> None:
        """Read the prompts, then sample until every row has stopped or is full."""
        prompts = [request.prompt_ids for request in self.requests]
        stepper = self.policy.stepper(prompts, self.max_new_tokens)
        for position in range(self.max_new_tokens):
            ids = self._sample(stepper.hidden, position)
            running = ~self.stopped[self.rows]
            num_running = int(running.sum())
            if num_running == 0 or position + 1 == self.max_new_tokens:
                return
            if num_running < len(running) and 1 - num_running / len(running) >= compact_fraction:
                keep = running.nonzero().squeeze(1)
                self.rows = self.rows[keep]
                keep = keep.to(ids.device)
                ids, self.uniforms = ids[keep], self.uniforms[keep]
                stepper.keep(keep)
            stepper.step(ids)

    def generations(self) -> list[Generation]:
        """What was sampled, row by row."""
        ends = self.lengths.cumsum(0)
        starts = ends - self.lengths
        total = int(ends[-1])
        ids = torch.zeros(total, dtype=torch.long)
        logprobs = torch.zeros(total)
        first = self.steps[0].hidden
        hidden = None if first is None else torch.zeros(total, first.shape[1])
        for position, step in enumerate(self.steps):
            valid = position < self.lengths[step.rows]
            places = starts[step.rows[valid]] + position
            ids[places] = step.ids.cpu()[valid]
            logprobs[places] = step.logprobs.cpu()[valid]
            if hidden is not None and step.hidden is not None:
                hidden[places] = step.hidden.float().cpu()[valid]
        out: list[Generation] = []
        for start, end, stopped in zip(
            starts.tolist(), ends.tolist(), self.stopped.tolist(), strict=True
        ):
            out.append(
                Generation(
                    action_ids=ids[start:end].tolist(),
                    logprobs=logprobs[start:end].numpy(),
                    finish=Finish.STOP if stopped else Finish.LENGTH,
                    hidden=None if hidden is None else hidden[start:end].numpy(),
                )
            )
        return out

    def _draw(self) -> np.ndarray:
        """[N, max_new_tokens] uniform numbers, each row from its own stream."""
        return np.stack([stream(r.seed).random(self.max_new_tokens) for r in self.requests])

    def _sample(self, hidden: torch.Tensor, position: int) -> torch.Tensor:
        """Choose one id for every row in the batch and record it; return the ids [B]."""
        weight, bias = self.policy.unembedding()
        logits = torch.nn.functional.linear(hidden, weight, bias).float()
        ids, logprobs = choose(logits, self.uniforms[:, position], self.temperature)
        running = self.rows[~self.stopped[self.rows]]
        self.lengths[running] += 1
        self.stopped[self.rows] |= torch.isin(ids, self.stops).cpu()
        self.steps.append(
            _Step(
                rows=self.rows,
                ids=ids,
                logprobs=logprobs,
                hidden=hidden if self.with_hidden else None,
            )
        )
        return ids


def _prompt_key(request: GenerationRequest) -> tuple[int, tuple[int, ...]]:
    """Sorts by length, which saves padding, and puts equal prompts side by side."""
    return len(request.prompt_ids), tuple(request.prompt_ids)
