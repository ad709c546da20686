"""The machines that a plan is made for: what is typed as `plan.KEY=VALUE`."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from selfdistill_cli.core.settings import in_range

GIB = float(1 << 30)


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """Machines and what to assume about the run."""

    nodes: int = 1
    """Machines (default: 1)."""
    gpus: int = 1
    """GPUs, one rank each, of one machine (default: 1)."""
    gpu_memory_gib: float = 80.0
    """Memory of one GPU in GiB; on a machine without one, of one process (default: 80)."""
    cpu_memory_gib: float | None = None
    """Memory of one machine in GiB, for the values of zero that offload (default: not checked)."""
    reserve_gib: float = 1.0
    """What the driver and its libraries take of each GPU in GiB (default: 1)."""
    sequence_tokens: int | None = None
    """Tokens of the longest sequence (default: rollout.max_context_tokens, which is the most)."""
    calibration: str | None = None
    """A finished run whose measured times are scaled to this one: a directory, or its name under
    run.root (default: none, and no step time)."""

    def __post_init__(self) -> None:
        in_range(self, 1, 1e5, "nodes", "gpus")
        in_range(self, 1e-3, 1e5, "gpu_memory_gib", "cpu_memory_gib")
        in_range(self, 0, 1e5, "reserve_gib")
        in_range(self, 2, 1e9, "sequence_tokens")

    @property
    def ranks(self) -> int:
        """Processes of the run."""
        return self.nodes * self.gpus

    @property
    def room(self) -> float:
        """Bytes that a rank may use."""
        return max(0.0, self.gpu_memory_gib - self.reserve_gib) * GIB

    @property
    def cpu_room(self) -> float:
        """Bytes of a machine's memory."""
        return inf if self.cpu_memory_gib is None else self.cpu_memory_gib * GIB
