"""Settings of tracking: where copies of metrics.jsonl go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from selfdistill_cli.core.packages import Package
from selfdistill_cli.core.settings import Settings, in_range


@dataclass(frozen=True, kw_only=True)
class TrackerSettings(Settings):
    """Base of all trackers. metrics.jsonl is always written; a tracker copies it."""


@dataclass(frozen=True, kw_only=True)
class NoTrackerSettings(TrackerSettings):
    """`tracker=none`: metrics.jsonl only."""


@dataclass(frozen=True, kw_only=True)
class CopySettings(TrackerSettings):
    """Base of the copies that a library keeps, in a process of its own."""

    backend: ClassVar[str]
    """Module of this room that runs in that process."""
    package: ClassVar[Package]
    """What must be installed."""

    log_timeout_s: float
    """Seconds that one line of metrics may wait for a place in the queue before it is dropped."""
    finish_timeout_s: float
    """Seconds that the end of a run waits for the copy; what is missing then can be built again
    from metrics.jsonl (`selfdistill sync`)."""
    samples: int
    """Episodes shown of each file that run.trajectories_every writes; 0 shows none."""
    sample_characters: int
    """Longest text of a prompt or an answer that is shown; the rest is cut."""

    def __post_init__(self) -> None:
        in_range(self, 0, 1e6, "log_timeout_s", "finish_timeout_s")
        in_range(self, 0, 1000, "samples")
        in_range(self, 1, 1e6, "sample_characters")


@dataclass(frozen=True, kw_only=True)
class WandbSettings(CopySettings):
    """`tracker=wandb`: Weights & Biases."""

    implementation: ClassVar[str] = "selfdistill_cli.tracking.wandb_sink:WandbSink"
    backend: ClassVar[str] = "wandb_worker"
    package: ClassVar[Package] = Package(
        module="wandb", install='pip install "wandb>=0.19,<0.40"', otherwise="tracker=none"
    )

    mode: Literal["offline", "online", "disabled"]
    """offline: files in the run directory, no account and no network; online: needs a login."""
    project: str
    """W&B project."""
    entity: str | None
    """W&B user or team, null for the account's default."""
    group: str | None
    """Runs that belong together in the W&B web page; null: the sweep of W&B, if there is one."""
    job_type: str | None
    """What kind of run it is, for grouping inside a group."""
    name: str | None
    """Name shown in W&B; null is the name of the run directory."""
    notes: str | None
    """A text about the run."""
    tags: list[str]
    """Labels of the run."""
    init_timeout_s: float
    """Seconds that the start of W&B may take; online, training starts after it at the latest."""


@dataclass(frozen=True, kw_only=True)
class TensorboardSettings(CopySettings):
    """`tracker=tensorboard`: event files in the run directory."""

    implementation: ClassVar[str] = "selfdistill_cli.tracking.local_sinks:TensorboardSink"
    backend: ClassVar[str] = "tensorboard_worker"
    package: ClassVar[Package] = Package(
        module="tensorboard",
        install='pip install "tensorboard>=2.18,<3" (the extra `tensorboard`)',
        otherwise="tracker=wandb",
    )


@dataclass(frozen=True, kw_only=True)
class TrackioSettings(CopySettings):
    """`tracker=trackio`: a local database that `trackio show` reads."""

    implementation: ClassVar[str] = "selfdistill_cli.tracking.local_sinks:TrackioSink"
    backend: ClassVar[str] = "trackio_worker"
    package: ClassVar[Package] = Package(
        module="trackio",
        install='pip install "trackio>=0.43,<1" (the extra `trackio`)',
        otherwise="tracker=wandb",
    )

    project: str
    """Trackio's project."""
    group: str | None
    """Runs that belong together."""
    folder: str | None
    """Where the database lies; null is the folder `trackio` beside the run directories."""


@dataclass(frozen=True, kw_only=True)
class SeveralSettings(TrackerSettings):
    """Several trackers at once, for example `tracker=wandb_tensorboard`."""

    sinks: dict[str, TrackerSettings]
    """Each by a name of its own; its settings stand under `tracker.sinks.NAME`."""


def each_tracker(tracker: Settings) -> Mapping[str, Settings]:
    """Every tracker that does something, by the key where its settings stand."""
    if isinstance(tracker, SeveralSettings):
        found = {f"tracker.sinks.{name}": sink for name, sink in tracker.sinks.items()}
    else:
        found: dict[str, Settings] = {"tracker": tracker}
    return {key: settings for key, settings in found.items() if settings.implementation}
