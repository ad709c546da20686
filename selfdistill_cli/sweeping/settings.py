"""Settings of a sweep: what it is called, what is measured, what happens when a run fails."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, ClassVar, Literal

from selfdistill_cli.core.errors import ConfigError, FieldError
from selfdistill_cli.core.settings import Settings, in_range

if TYPE_CHECKING:
    from selfdistill_cli.config.axes import Space

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]{0,99}")


@dataclass(frozen=True, kw_only=True)
class SweepSettings(Settings):
    """What every sweep has. A single run reads none of it."""

    name: str | None
    """Folder under run.root/multirun; null makes one from the swept keys and a hash."""
    metric: str | list[str]
    """The key of metrics.jsonl by which cells are compared, or a list of several."""
    objective: Literal["final", "best", "auc"]
    """What of the metric counts: its last value, its best one, or its mean over steps."""
    direction: Literal["maximize", "minimize"] | list[Literal["maximize", "minimize"]]
    """Whether more of the metric is better; a list has one for each metric."""
    on_failure: Literal["continue", "fail_fast", "retry"]
    """After a failed cell: go on with the others, stop the sweep, or start it again."""
    retries: int
    """Further starts of a failed cell under on_failure=retry."""
    grace_s: float
    """Seconds in which a cell that is asked to stop writes its checkpoint; then it is ended."""
    log_limit_mb: float
    """Size of a cell's log; of a longer one the beginning and the end are kept."""

    def __post_init__(self) -> None:
        in_range(self, 0, 1000, "retries")
        in_range(self, 0.1, inf, "grace_s")
        in_range(self, 0.01, inf, "log_limit_mb")
        self._check_metrics()
        if self.name is not None and not NAME.fullmatch(self.name):
            raise FieldError(
                "name",
                f"'{self.name}'",
                "up to 100 letters, digits and -_.+@, the first a letter, a digit or _",
            )

    def _check_metrics(self) -> None:
        metrics, directions = self.metric, self.direction
        if not isinstance(metrics, list) and not isinstance(directions, list):
            return
        several = isinstance(metrics, list) and len(set(metrics)) == len(metrics) > 1
        if not several:
            raise FieldError("metric", metrics, "one key, or a list of several different ones")
        if not isinstance(directions, list) or len(directions) != len(metrics):
            raise FieldError(
                "direction", directions, f"a list of {len(metrics)}, one for each of sweep.metric"
            )

    def check(self, space: Space) -> None:
        """Raise ConfigError if these keys cannot be swept so, before anything is written."""


@dataclass(frozen=True, kw_only=True)
class GridSettings(SweepSettings):
    """`sweep=grid`: every combination of the swept values."""

    implementation: ClassVar[str] = "selfdistill_cli.sweeping.proposals:Grid"

    def check(self, space: Space) -> None:
        """Raise ConfigError for a key without values to go through."""
        if space.intervals:
            keys = ", ".join(interval.key for interval in space.intervals)
            raise ConfigError(
                f"{keys}: an interval has no values to go through; list them, {keys}=A,B,C, or let "
                "a search choose: sweep=tpe"
            )
