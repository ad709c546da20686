"""Settings of the launchers."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from selfdistill_cli.core.settings import Settings, in_range


@dataclass(frozen=True, kw_only=True)
class InlineSettings(Settings):
    """`launcher=inline`: the process that the command was given in.

    Started by torchrun or deepspeed it is one rank of several, as RANK and WORLD_SIZE say.
    """

    implementation: ClassVar[str] = "selfdistill_cli.launching.inline:Inline"

    timeout_s: float
    """Seconds that ranks wait for each other before the run ends, naming the late one."""
    jobs: int | None
    """Cells of a sweep that run at once; null: as many as cores and GPUs carry."""

    def __post_init__(self) -> None:
        in_range(self, 1, inf, "timeout_s")
        in_range(self, 1, 10**6, "jobs")


@dataclass(frozen=True, kw_only=True)
class LocalSettings(Settings):
    """`launcher=local`: several processes on this machine, started and watched by the command."""

    implementation: ClassVar[str] = "selfdistill_cli.launching.local:Local"

    num_processes: int
    """Ranks to start: one per GPU, or a few on a CPU."""
    timeout_s: float
    """Seconds that ranks wait for each other before the run ends, naming the late one."""
    jobs: int | None
    """Cells of a sweep that run at once; null: as many as cores and GPUs carry."""

    def __post_init__(self) -> None:
        in_range(self, 1, 1024, "num_processes")
        in_range(self, 1, inf, "timeout_s")
        in_range(self, 1, 10**6, "jobs")
