"""Settings of the rollout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from selfdistill_cli.core.settings import Settings


@dataclass(frozen=True, kw_only=True)
class InProcessSettings(Settings):
    """Sampling in the training process, from the student's own module."""

    implementation: ClassVar[str] = "selfdistill_cli.rollout.in_process:InProcessRollout"

    max_new_tokens: int
    """Sampled tokens in one turn at most."""
    temperature: float
    """Sampling temperature of training; log-probs are scored at the same one. 0 = greedy."""
    max_turns: int
    """Turns of the agent in one episode at most."""
    max_context_tokens: int
    """Tokens of one episode at most: a turn starts only if it leaves room for max_new_tokens."""
    max_batch_rows: int
    """Sequences decoded at once: bounds the memory of the key-value cache."""
    compact_fraction: float
    """Share of finished rows from which on they are dropped from the batch."""
