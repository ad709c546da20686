"""Settings of the rollout."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal

from selfdistill_cli.core.settings import Settings, in_range


@dataclass(frozen=True, kw_only=True)
class RolloutSettings(Settings):
    """What every engine has: how long turns and episodes may be, and how many run at once."""

    implementation: ClassVar[str] = ""

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


@dataclass(frozen=True, kw_only=True)
class InProcessSettings(RolloutSettings):
    """Sampling in the training process, from the student's own module."""

    implementation: ClassVar[str] = "selfdistill_cli.rollout.in_process:InProcessRollout"

    compact_fraction: float
    """Share of finished rows from which on they are dropped from the batch."""


@dataclass(frozen=True, kw_only=True)
class VllmSettings(RolloutSettings):
    """Sampling by vLLM: in this process, or (`url`) by servers that several ranks may share.

    The engine has a copy of the weights, which every publication replaces. Its log-probabilities
    differ from the trainer's by rounding: `rollout/gap_mean` and its neighbours say by how much.
    """

    implementation: ClassVar[str] = "selfdistill_cli.rollout.vllm_engine:VllmRollout"
    copies_weights: ClassVar[bool] = True
    knows_ranks: ClassVar[bool] = True

    url: list[str] | str | None
    """Server such as http://host:8000, or several, which ranks are dealt to; null = in this
    process."""
    model: str | None
    """Name of the base model on the servers; null = the only one that they serve."""
    sync_folder: str | None
    """Folder that this process and the servers see, for weights on their way; null = a temporary
    one in memory, for servers on this machine."""
    wait_s: float
    """Seconds to wait for a server that is starting."""
    timeout_s: float
    """Seconds in which a server must answer one request; loading weights is one."""
    retries: int
    """How often a request is sent again after a server that failed or did not answer."""
    max_gap: float | None
    """Largest mean difference, in nats, between the engine's and the trainer's log-probabilities
    of a probe after weights were published; beyond it the run stops. null = 0.02 in float32, 0.25
    in bfloat16."""
    gpu_memory_utilization: float
    """In this process: share of the GPU that vLLM takes for its weights and key-value cache."""
    tensor_parallel_size: int
    """In this process: GPUs that one engine is spread over; needs a run of one process."""
    sleep_level: Literal[0, 1, 2]
    """In this process, on a GPU: while training, 1 moves the engine's weights to the CPU and drops
    its cache, 2 drops both, 0 keeps both."""
    enforce_eager: bool
    """In this process: skip vLLM's compilation and CUDA graphs; starts faster, samples slower."""

    def __post_init__(self) -> None:
        in_range(self, 0, inf, "wait_s")
        in_range(self, 0.1, inf, "timeout_s")
        in_range(self, 0, 100, "retries")
        in_range(self, 1e-6, inf, "max_gap")
        in_range(self, 0.01, 1, "gpu_memory_utilization")
        in_range(self, 1, 1024, "tensor_parallel_size")

    @property
    def urls(self) -> list[str]:
        """The servers' addresses, none for an engine in this process."""
        if self.url is None:
            return []
        return [self.url] if isinstance(self.url, str) else list(self.url)
