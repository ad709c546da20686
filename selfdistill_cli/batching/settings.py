"""Settings of batching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from selfdistill_cli.core.settings import Settings


@dataclass(frozen=True, kw_only=True)
class BatchSettings(Settings):
    """How much is collected in a step, and how it is cut into updates and micro-batches."""

    implementation: ClassVar[str] = ""

    tasks_per_step: int
    """Tasks in one collection; each is tried method.group_size times."""
    epochs: int
    """Passes over a collection."""
    mini_batches: int
    """Optimizer updates in one pass; fewer if there are fewer samples."""
    micro_batch_rows: int
    """Samples in one forward pass at most."""
    micro_batch_tokens: int
    """Padded tokens in one forward pass at most; a longer sample goes alone."""
