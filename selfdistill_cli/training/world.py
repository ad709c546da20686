"""The ranks of a run: what each one does, what all of them know. Here: the world of one process.

Every rank runs the same loop. What is expensive is dealt out, what is small is gathered, and all
that lies between is computed on every rank from the same numbers, so how many there are does not
matter. `process_world.ProcessWorld` does this over torch.distributed; one process needs none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")


class World:
    """One process: it does everything, and there is nobody to talk to."""

    rank = 0
    """Number of this process, from 0."""
    size = 1
    """Number of processes."""
    local_rank = 0
    """Number of this process among those of its machine."""

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and talks to people."""
        return self.rank == 0

    def mine(
        self,
        items: Sequence[T],
        costs: Sequence[float] | None = None,
        units: Sequence[Hashable] | None = None,
    ) -> list[T]:
        """The items that fall to this rank, in order; see `deal`."""
        return list(items)

    def shared(
        self,
        items: Sequence[T],
        function: Callable[[list[T]], Iterable[R]],
        costs: Sequence[float] | None = None,
        units: Sequence[Hashable] | None = None,
        together: bool = False,
    ) -> list[R]:
        """Apply `function` to this rank's items; return all ranks' results, in item order.

        It returns one result per item, and is called without items only if it must be called
        `together`. What it raises on any rank is raised on every rank.
        """
        return list(function(list(items)))

    def from_first(self, function: Callable[[], T]) -> T:
        """Call `function` on rank 0 alone; its result, or what it raised, reaches every rank."""
        return function()

    def gather(self, value: T) -> list[T]:
        """Every rank's value, by rank."""
        return [value]

    def sum(self, values: Sequence[float]) -> list[float]:
        """Sums over the ranks."""
        return list(values)

    def agree(self, flag: bool) -> bool:
        """Whether the flag is set on any rank."""
        return flag

    def sum_gradients(self, parameters: Sequence[torch.Tensor]) -> None:
        """Replace every parameter's gradient by the sum over the ranks."""

    def note(self, phase: str, detail: str = "", waiting: bool = False) -> None:
        """Say what this rank is doing, for the others' error message if it never ends."""

    def begin_step(self, step: int) -> None:
        """Say which step follows."""

    def log_to(self, folder: Path) -> None:
        """Let what the ranks other than 0 and their libraries print go to files in a folder."""

    def close(self) -> None:
        """Leave. May be called twice."""


def deal(
    costs: Sequence[float], size: int, units: Sequence[Hashable] | None = None
) -> list[int]:
    """Return the rank of every item: the costliest first, each to the rank with the least so far.

    Items with an equal entry in `units` stay together. Ties go to the earlier item and the lower
    rank, so every rank finds the same answer.
    """
    keys: Sequence[Any] = range(len(costs)) if units is None else units
    totals: dict[Any, float] = {}
    for key, cost in zip(keys, costs, strict=True):
        totals[key] = totals.get(key, 0.0) + cost
    loads = [0.0] * size
    owner: dict[Any, int] = {}
    for key in sorted(totals, key=lambda k: -totals[k]):
        owner[key] = min(range(size), key=loads.__getitem__)
        loads[owner[key]] += totals[key]
    return [owner[key] for key in keys]
