"""What engines with a copy of the weights have in common: answers checked, publications probed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import torch

from selfdistill_cli.core.errors import ServerError
from selfdistill_cli.core.seeds import stream
from selfdistill_cli.core.types import Finish, Generation
from selfdistill_cli.losses.logprobs import token_statistics

PROBE_TOKENS = 32
MAX_GAP = {True: 0.02, False: 0.25}
"""Mean difference that rounding explains, in nats: in float32, and in anything shorter."""
ROUNDING = 1e-3
"""How far above 0 rounding can lift a log-probability."""

R = TypeVar("R")


class Ranks(Protocol):
    """What such an engine asks of the run's ranks."""

    rank: int
    size: int

    def from_first(self, function: Callable[[], R]) -> R: ...


class CopiedPolicy(Protocol):
    """What such an engine asks of the policy."""

    chat: Any
    backbone: Any

    @property
    def device(self) -> torch.device: ...
    @property
    def language_model(self) -> Any: ...
    def unembedding(self) -> tuple[torch.Tensor, torch.Tensor | None]: ...
    def hidden_states(
        self, token_ids_BT: torch.Tensor, attention_mask_BT: torch.Tensor | None
    ) -> torch.Tensor: ...


def generation_of(
    ids: Sequence[int],
    logprobs: Sequence[float],
    *,
    stop_ids: frozenset[int],
    max_new_tokens: int,
    who: str,
) -> Generation:
    """Check what an engine says it sampled; raises ServerError, naming `who`."""
    problem = _problem(ids, logprobs, stop_ids, max_new_tokens)
    if problem is not None:
        raise ServerError(f"{who}: {problem}. Is this a vLLM of docs/vllm.md, and the same model?")
    return Generation(
        action_ids=[int(i) for i in ids],
        logprobs=np.minimum(np.asarray(logprobs, dtype=np.float32), 0.0),
        finish=Finish.STOP if ids[-1] in stop_ids else Finish.LENGTH,
    )


def _problem(
    ids: Sequence[int], logprobs: Sequence[float], stop_ids: frozenset[int], max_new_tokens: int
) -> str | None:
    if not 0 < len(ids) <= max_new_tokens:
        return f"sampled {len(ids)} tokens, expected 1 to {max_new_tokens}"
    if len(logprobs) != len(ids):
        return f"gave {len(logprobs)} log-probabilities for {len(ids)} sampled tokens"
    for value in logprobs:
        if not isinstance(value, int | float) or not math.isfinite(value) or value > ROUNDING:
            return f"gave the log-probability {value}, expected a finite number of at most 0"
    if stop_ids.intersection(ids[:-1]):
        return "sampled on after a stop token"
    if ids[-1] not in stop_ids and len(ids) < max_new_tokens:
        return f"ended after {len(ids)} tokens without a stop token"
    return None


def probe_ids(policy: CopiedPolicy) -> list[int]:
    """Token ids to compare an engine with the trainer on: always the same ones."""
    size = len(policy.chat.tokenizer)
    return stream("probe").integers(0, size, PROBE_TOKENS).tolist()


@torch.no_grad()
def trainer_logprobs(policy: CopiedPolicy, ids: Sequence[int]) -> list[float]:
    """The policy's log-probability of every id but the first, at temperature 1."""
    row_BT = torch.tensor([list(ids)], device=policy.device)
    hidden_BTH = policy.hidden_states(row_BT, None)
    everything_BT = torch.ones_like(row_BT, dtype=torch.bool)
    logprobs_BT, _ = token_statistics(hidden_BTH, *policy.unembedding(), row_BT, everything_BT)
    return logprobs_BT[0, 1:].tolist()


def check_published(
    policy: CopiedPolicy,
    found: Sequence[float],
    own: Sequence[float],
    limit: float | None,
    who: str,
) -> None:
    """Raise ServerError if an engine's weights are not those that were published to it."""
    if limit is None:
        limit = MAX_GAP[policy.unembedding()[0].dtype == torch.float32]
    gap = float(np.abs(np.subtract(found, own)).mean())
    if not gap <= limit:  # nan too
        raise ServerError(
            f"{who}: after the weights were published its log-probabilities of a probe differ from "
            f"the trainer's by {gap:.3g} nats per token (rollout.max_gap={limit:g}). Does it serve "
            "another base model or another precision, or do two runs publish to it? Start it again "
            "on the folder of policy.path, for this run alone (docs/vllm.md)"
        )
