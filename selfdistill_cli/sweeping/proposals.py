"""Which cells a sweep runs: all that were planned, or the next one by what the others came to."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from selfdistill_cli.analysis.ledger import Cell, Status
from selfdistill_cli.config.axes import Space
from selfdistill_cli.sweeping.settings import SweepSettings


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A cell before it has a name: what stands for each axis on the command line."""

    values: Mapping[str, str]
    """By key as it was typed, prefixes included: {"method": "gear", "optim.lr": "1e-4"}."""


class Proposer(Protocol):
    """Proposes cells. Built as `Implementation(settings, space, known, folder)`.

    `known` are the cells of the ledger by name: a proposer that learns takes what ended from there,
    as after a stop. One that did not end is started again without being proposed again. `folder` is
    the directory of the sweep, for what a proposer has to remember.
    """

    def planned(self) -> Sequence[Planned]:
        """Cells that are known before anything runs; those of the ledger may be among them."""
        ...

    def next(self) -> Planned | None:
        """Another cell, now that there is room for one; None: nothing now."""
        ...

    def named(self, name: str, planned: Planned) -> None:
        """A proposed cell is called `name` from now on; it may be one that is in the ledger."""
        ...

    def finished(self) -> bool:
        """Whether `next` will never give anything again."""
        ...

    def tell(self, name: str, status: Status, objective: float | list[float] | None) -> None:
        """A cell has ended, with a status of `ledger.ENDED`."""
        ...

    def should_stop(self, name: str, step: int, value: float | None) -> bool:
        """Whether a running cell, whose metric is `value` at `step`, should end as `pruned`.

        Asked in order of steps, for each line with the metric; a cell that is resumed starts with
        those of its earlier attempts. None: the value was not finite.
        """
        ...

    def report(self) -> list[str]:
        """Lines about what was found, at the end of the sweep."""
        ...


class Grid:
    """A `Proposer` that knows every cell beforehand; the last axis changes fastest."""

    def __init__(
        self, settings: SweepSettings, space: Space, known: Mapping[str, Cell], folder: Path
    ):
        self.space = space

    def planned(self) -> list[Planned]:
        """Every combination."""
        keys = [axis.key for axis in self.space.axes]
        combinations = itertools.product(*(axis.values for axis in self.space.axes))
        return [Planned(values=dict(zip(keys, c, strict=True))) for c in combinations]

    def next(self) -> Planned | None:
        """Nothing: all were planned."""
        return None

    def named(self, name: str, planned: Planned) -> None:
        """A grid asks for no cell by name."""

    def finished(self) -> bool:
        """At once."""
        return True

    def tell(self, name: str, status: Status, objective: float | list[float] | None) -> None:
        """A grid learns nothing."""

    def should_stop(self, name: str, step: int, value: float | None) -> bool:
        """Never."""
        return False

    def report(self) -> list[str]:
        """Nothing: `selfdistill sweep report` compares."""
        return []
