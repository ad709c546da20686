"""Settings of sweeps that choose their cells by what the others came to."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, ClassVar, Literal

from selfdistill_cli.core.errors import FieldError
from selfdistill_cli.core.settings import in_range
from selfdistill_cli.envs.packages import Package
from selfdistill_cli.sweeping.settings import SweepSettings

if TYPE_CHECKING:
    from selfdistill_cli.config.axes import Space

OPTUNA = Package(
    module="optuna",
    install='pip install "optuna>=4,<6" (the extra `sweep`)',
    otherwise="sweep=grid, which needs nothing",
)


@dataclass(frozen=True, kw_only=True)
class SearchSettings(SweepSettings):
    """What every search has. A trial is a choice of values: one cell, or one for each seed."""

    implementation: ClassVar[str] = "selfdistill_cli.sweeping.search:Search"

    trials: int
    """How many there are in all, those of earlier starts included; more continues the search."""
    seed: int
    """Of the choices. Trial n draws from a stream of (seed, n), so a stop changes nothing."""
    averaged: list[str]
    """Swept keys that are not searched: a trial runs all their values, and the mean counts."""
    pruner: Literal["none", "median", "halving", "hyperband"]
    """Which trials end early: none; those below the median of the earlier ones at the same step;
    all but the best of each rung; the same with several schedules of rungs."""
    pruner_startup_trials: int
    """median: trials that are complete before the first one is pruned."""
    pruner_warmup_steps: int
    """Steps of run.max_steps before which no trial is pruned."""
    reduction_factor: int
    """halving, hyperband: one of this many trials goes on at each rung."""

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(self, 1, 1_000_000, "trials")
        in_range(self, 0, 2**63 - 1, "seed")
        in_range(self, 0, inf, "pruner_startup_trials", "pruner_warmup_steps")
        in_range(self, 2, 1000, "reduction_factor")
        if isinstance(self.metric, list) and self.pruner != "none":
            raise FieldError(
                "pruner",
                f"'{self.pruner}' with {len(self.metric)} metrics",
                "none: a trial can be pruned by one metric alone",
            )

    def check(self, space: Space) -> None:
        """Raise ConfigError without Optuna, or for a key that cannot be searched."""
        OPTUNA.load("sweep", "storages.journal")
        importlib.import_module("selfdistill_cli.sweeping.dimensions").read(space, self.averaged)


@dataclass(frozen=True, kw_only=True)
class TpeSettings(SearchSettings):
    """`sweep=tpe`: near what went well, away from what went badly."""

    startup_trials: int
    """Trials at random before the first that learns; failed ones count."""
    multivariate: bool
    """Choose all keys together, so that what goes well together is found; else each by itself."""
    constant_liar: bool
    """Keep away from what is running: for several jobs at once."""

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(self, 0, inf, "startup_trials")


@dataclass(frozen=True, kw_only=True)
class RandomSettings(SearchSettings):
    """`sweep=random`: independent draws."""


@dataclass(frozen=True, kw_only=True)
class NsgaSettings(SearchSettings):
    """`sweep=nsga2`: generations of trials that descend from the best, for several metrics."""

    population: int
    """Trials in a generation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(self, 2, inf, "population")
