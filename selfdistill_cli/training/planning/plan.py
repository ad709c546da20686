"""A plan: does the run fit, with which `zero`; how large are checkpoints, how long its steps?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from selfdistill_cli.training.planning.division import divisions
from selfdistill_cli.training.planning.hardware import Hardware
from selfdistill_cli.training.planning.memory import Memory, rank_memory, value_head_bytes
from selfdistill_cli.training.planning.requirements import (
    Requirements,
    moment_bytes,
    read_requirements,
)
from selfdistill_cli.training.planning.shape import Shape, read_shape
from selfdistill_cli.training.planning.times import StepTime, step_time
from selfdistill_cli.training.settings import TrainSettings

WIDE = 4
COPIES_IN_FLIGHT = 2
"""Beside the newest `checkpoint.keep`: the best one, and the one that is being written."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that `selfdistill plan` says."""

    hardware: Hardware
    """The machines."""
    shape: Shape
    """The student."""
    needs: Requirements
    """What the configuration asks for."""
    zero: str
    """The configuration's own value of `zero`."""
    memories: dict[str, Memory]
    """Memory of one rank, by value of `zero`."""
    checkpoint: float
    """Bytes of one checkpoint."""
    disk: float
    """Bytes of all checkpoints that exist at one time."""
    time: StepTime | None
    """Seconds of a step, None without a calibration."""

    def fits(self, zero: str) -> bool:
        """Whether a rank and the machine's memory hold it."""
        memory = self.memories[zero]
        cpu = sum(memory.cpu.values()) * self.hardware.gpus
        return memory.peak <= self.hardware.room and cpu <= self.hardware.cpu_room

    @property
    def advice(self) -> str | None:
        """The first value of `zero` that fits, from what communicates least."""
        return next((zero for zero in self.memories if self.fits(zero)), None)

    def as_json(self) -> dict[str, Any]:
        """All numbers, bytes and seconds."""
        memories = {
            zero: {
                **asdict(memory), "fullest": memory.fullest, "allowance": memory.allowance,
                "peak": memory.peak, "fits": self.fits(zero),
            }
            for zero, memory in self.memories.items()
        }  # fmt: skip
        return {
            "hardware": asdict(self.hardware), "shape": asdict(self.shape),
            "requirements": asdict(self.needs), "zero": self.zero, "memory": memories,
            "advice": self.advice, "checkpoint_bytes": self.checkpoint, "disk_bytes": self.disk,
            "step_time": None if self.time is None else asdict(self.time),
        }  # fmt: skip


def make_plan(
    settings: TrainSettings,
    zero: str,
    hardware: Hardware,
    *,
    calibration: tuple[Path, TrainSettings] | None = None,
    on_gpu: bool = True,
) -> Plan:
    """Plan a run; `zero` is the chosen option of that group. Raises ConfigError.

    `calibration` is a finished run's directory and settings; `on_gpu` false is training on a CPU.
    """
    shape = read_shape(settings.policy)
    needs = read_requirements(settings, shape, hardware.sequence_tokens, hardware.ranks)
    memories = {
        division.name: rank_memory(shape, needs, division, on_gpu)
        for division in divisions(hardware.ranks)
    }
    has_master = zero not in ("off", "none")
    checkpoint = checkpoint_bytes(settings, shape, needs, has_master)
    time = None
    if calibration is not None:
        time = step_time(*calibration, settings, hardware.ranks)
    return Plan(
        hardware=hardware,
        shape=shape,
        needs=needs,
        zero=zero,
        memories=memories,
        checkpoint=checkpoint,
        disk=checkpoint * (settings.checkpoint.keep + COPIES_IN_FLIGHT),
        time=time,
    )


def checkpoint_bytes(
    settings: TrainSettings, shape: Shape, needs: Requirements, has_master: bool
) -> float:
    """Weights (of adapters their own only), the slow copy twice (as a policy, and exactly), the
    optimizer's state and master weights. The tokenizer's files are left out."""
    policy = shape.trained_bytes if shape.rank else shape.weights_bytes
    head = value_head_bytes(shape, needs)
    sync: Any = settings.method.sync  # pyright: ignore
    is_policy = getattr(sync, "scope", "") == "all" and (
        sync.lora_average == "factors" or not shape.rank
    )
    teacher = policy if needs.slow_bytes and is_policy else 0.0
    master = shape.trained * WIDE if has_master else 0.0
    return policy + teacher + head + needs.slow_bytes + master + moment_bytes(
        needs, shape, has_master
    )
