"""Settings of a sweep: what it is called, what is measured, what happens when a run fails."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal

from selfdistill_cli.core.errors import FieldError
from selfdistill_cli.core.settings import Settings, in_range

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]{0,99}")


@dataclass(frozen=True, kw_only=True)
class SweepSettings(Settings):
    """What every sweep has. A single run reads none of it."""

    name: str | None
    """Folder under run.root/multirun; null makes one from the swept keys and a hash."""
    metric: str
    """The key of metrics.jsonl by which cells are compared."""
    objective: Literal["final", "best", "auc"]
    """What of the metric counts: its last value, its best one, or its mean over steps."""
    direction: Literal["maximize", "minimize"]
    """Whether more of the metric is better."""
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
        if self.name is not None and not NAME.fullmatch(self.name):
            raise FieldError(
                "name",
                f"'{self.name}'",
                "up to 100 letters, digits and -_.+@, the first a letter, a digit or _",
            )


@dataclass(frozen=True, kw_only=True)
class GridSettings(SweepSettings):
    """`sweep=grid`: every combination of the swept values."""

    implementation: ClassVar[str] = "selfdistill_cli.sweeping.proposals:Grid"
