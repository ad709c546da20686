"""Settings of the sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from selfdistill_cli.core.settings import Settings, in_range


@dataclass(frozen=True, kw_only=True)
class SandboxSettings(Settings):
    """How programs are isolated and what each of them may use."""

    implementation: ClassVar[str] = "selfdistill_cli.sandbox.sandbox:Sandbox"

    level: Literal["auto", "bubblewrap", "landlock", "process"]
    """`auto`: bubblewrap, else landlock, else stop; `process` has limits but no isolation."""
    workers: int
    """Programs that run at the same time."""
    time_limit_s: float
    """CPU seconds of one program, rounded up; its wall-clock limit is `3 * time_limit_s + 1`,
    from when it is confined."""
    memory_mb: int
    """Address space that one program may add, in MiB."""
    max_file_mb: int
    """Size of the scratch directory and of one file in it, in MiB."""
    max_output_kb: int
    """Largest value that one call may return, encoded, in KiB; of a whole program on standard
    input, the most that it may print."""

    def __post_init__(self) -> None:
        in_range(self, 1, 1024, "workers")
        in_range(self, 0.01, 86400, "time_limit_s")
        in_range(self, 16, 1 << 20, "memory_mb")
        in_range(self, 1, 1 << 16, "max_file_mb")  # a size of 0 would mean no limit to tmpfs
        in_range(self, 1, 1024, "max_output_kb")
