"""How many cells run at once, and which GPUs each of them sees."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass

from selfdistill_cli.training.settings import TrainSettings


@dataclass(frozen=True, kw_only=True)
class Slots:
    """Room for cells."""

    environments: tuple[dict[str, str], ...]
    """For each cell that runs at once, what is added to its environment."""
    note: str
    """What lowered the number that was asked for, '' if nothing did."""

    @property
    def count(self) -> int:
        """Cells that run at once."""
        return len(self.environments)


def slots_for(settings: TrainSettings, num_cores: int, gpus: list[str]) -> Slots:
    """As many cells at once as `launcher.jobs` asks for and the machine carries, at least one."""
    processes = int(getattr(settings.launcher, "num_processes", 1))
    asked: int | None = getattr(settings.launcher, "jobs", None)
    threads = settings.run.num_threads
    by_cores = max(1, num_cores // (threads * processes))
    uses_gpus = bool(gpus) and getattr(settings.zero, "device", "auto") != "cpu"
    by_gpus = max(1, len(gpus) // processes) if uses_gpus else None
    most = by_cores if by_gpus is None else min(by_cores, by_gpus)
    count = most if asked is None else min(asked, most)
    reason = ""
    if asked is not None and asked > most:
        if by_gpus is not None and by_gpus <= by_cores:
            why = f"{len(gpus)} GPUs, {processes} for each cell"
        else:
            why = f"{num_cores} cores, run.num_threads={threads}"
            why += f" x launcher.num_processes={processes}" if processes > 1 else ""
        reason = f"launcher.jobs: {count} instead of {asked} at once ({why})"
    shares = [gpus[i * processes : (i + 1) * processes] for i in range(count)]
    return Slots(
        environments=tuple(
            {"CUDA_VISIBLE_DEVICES": ",".join(share)} if uses_gpus and share else {}
            for share in shares
        ),
        note=reason,
    )


def num_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def visible_gpus() -> list[str]:
    """GPUs by the names that CUDA_VISIBLE_DEVICES takes; asks nvidia-smi, not torch."""
    said = os.environ.get("CUDA_VISIBLE_DEVICES")
    if said is not None:
        return [name.strip() for name in said.split(",") if name.strip() not in ("", "-1")]
    if shutil.which("nvidia-smi") is None:
        return []
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [str(i) for i, line in enumerate(listed.splitlines()) if line.startswith("GPU ")]
