"""Settings of the rollout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

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
    max_live_tokens: int
    """Tokens of all episodes that are played at the same time; others wait for their turn."""
    overflow: Literal["stop", "drop_oldest"]
    """An episode that outgrows max_context_tokens ends, or loses its oldest observations."""
    env_wall_s: float
    """Seconds in which an environment must reply; then its episode ends as env_error."""
    env_cpu_s: float
    """CPU seconds of one episode's environment at most; then it ends as env_error."""
    max_batch_rows: int
    """Sequences decoded at once: bounds the memory of the key-value cache."""
    compact_fraction: float
    """Share of finished rows from which on they are dropped from the batch."""
