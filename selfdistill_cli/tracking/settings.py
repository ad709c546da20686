"""Settings of tracking: where copies of metrics.jsonl go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from selfdistill_cli.core.settings import Settings


@dataclass(frozen=True, kw_only=True)
class TrackerSettings(Settings):
    """Base of all trackers. metrics.jsonl is always written; a tracker copies it."""


@dataclass(frozen=True, kw_only=True)
class NoTrackerSettings(TrackerSettings):
    """`tracker=none`: metrics.jsonl only."""


@dataclass(frozen=True, kw_only=True)
class WandbSettings(TrackerSettings):
    """`tracker=wandb`: Weights & Biases, in a process of its own."""

    implementation: ClassVar[str] = "selfdistill_cli.tracking.wandb_sink:WandbSink"

    mode: Literal["offline", "online", "disabled"]
    """offline: files in the run directory, no account and no network; online: needs a login."""
    project: str
    """W&B project."""
    entity: str | None
    """W&B user or team, null for the account's default."""
    group: str | None
    """Runs that belong together in the W&B web page."""
    tags: list[str]
    """Labels of the run."""
    init_timeout_s: float
    """Seconds that the start of W&B may take; online, training starts after it at the latest."""
    log_timeout_s: float
    """Seconds that one line of metrics may wait for a place in the queue before it is dropped."""
    finish_timeout_s: float
    """Seconds that the end of a run waits for W&B; what is left can be uploaded later."""
