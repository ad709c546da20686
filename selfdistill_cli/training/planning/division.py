"""What each `zero` divides among ranks, and what it moves to the memory of the CPU.

Source: ZeRO (arXiv 1910.02054, figure 1 and section 3): with Adam in mixed precision a parameter
costs 2 bytes of weight, 2 of gradient and 12 of optimizer (master copy and two moments); stage 1
divides the 12, stage 2 also the gradient, stage 3 also the weight. ZeRO-Offload: arXiv 2101.06840.
This is the only place that knows; a row for another engine goes here.
"""

from __future__ import annotations

from dataclasses import dataclass

BUCKET = 50_000_000
"""Entries of DeepSpeed's buckets, as launch/deepspeed sets them."""


@dataclass(frozen=True, kw_only=True)
class Division:
    """One value of the group `zero` on some number of ranks."""

    name: str
    """Value of the group `zero`."""
    weights: int
    """Ranks that share one copy of the weights while learning."""
    gradients: int
    """Ranks that share one copy of the gradients."""
    optimizer: int
    """Ranks that share one copy of the optimizer's state and the master weights."""
    slow_copy: int
    """Ranks that share one slow copy."""
    has_master: bool
    """Whether the optimizer works on a float32 copy of the weights."""
    optimizer_on_cpu: bool
    """Optimizer and master weights are in the memory of the CPU."""
    weights_on_cpu: bool
    """The divided weights are too."""
    buckets: int
    """Buckets of `BUCKET` entries that communication keeps."""


def divisions(ranks: int) -> list[Division]:
    """All values of `zero` on a number of ranks, from what communicates least."""
    return [
        _division("off", 0, ranks),
        _division("zero1", 1, ranks),
        _division("zero2", 2, ranks),
        _division("zero2_offload", 2, ranks, offload=True),
        _division("zero3", 3, ranks),
        _division("zero3_offload", 3, ranks, offload=True),
    ]


def _division(name: str, stage: int, ranks: int, offload: bool = False) -> Division:
    return Division(
        name=name,
        weights=ranks if stage >= 3 else 1,
        gradients=ranks if stage >= 2 else 1,
        optimizer=ranks if stage >= 1 else 1,
        slow_copy=ranks if stage >= 3 else 1,
        has_master=stage >= 1,
        optimizer_on_cpu=offload,
        weights_on_cpu=offload and stage >= 3,
        buckets=2 if stage >= 1 else 0,
    )
