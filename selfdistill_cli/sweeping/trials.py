"""From cells to trials: which cells make one, and what it came to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from selfdistill_cli.analysis.ledger import ENDED, Cell, Status
from selfdistill_cli.sweeping.dimensions import Dimensions

Key = frozenset[tuple[str, str]]
"""The values of a cell: what makes it the same cell."""
AVOIDED: tuple[Status, ...] = ("failed", "nan", "invalid", "pruned")
"""A sampler learns to keep away from these. Optuna's samplers pass over trials that failed and
would propose their like again; those that were pruned count as worse than any complete one."""
REPEATS = "repeats"
"""Mark of a trial that repeats one which had ended: it ran nothing and does not count."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a trial came to."""

    state: TrialState
    """COMPLETE, PRUNED for what is to be avoided, FAIL for what says nothing about its values."""
    values: list[float] | None
    """The mean over its cells for each metric, of a complete trial alone."""
    word: str
    """`complete`, `no value`, or the status of the cell that went wrong."""


def key_of(values: Mapping[str, str]) -> Key:
    """What makes two cells the same."""
    return frozenset(values.items())


def counts(trial: FrozenTrial) -> bool:
    """Whether it is one of `sweep.trials`."""
    return REPEATS not in trial.user_attrs


def numbers(value: float | list[float] | None) -> list[float]:
    """An objective as a list, empty without one."""
    return [] if value is None else value if isinstance(value, list) else [value]


def outcome_of(cells: Sequence[Cell | None], num_metrics: int) -> Outcome | None:
    """What a trial with these cells came to, None if that is open; None among them: not made yet.

    One cell that went wrong settles it: a mean over the others would be another quantity.
    """
    ended = [cell for cell in cells if cell is not None and cell.status in ENDED]
    for cell in ended:
        if cell.status != "done":
            state = TrialState.PRUNED if cell.status in AVOIDED else TrialState.FAIL
            return Outcome(state=state, values=None, word=cell.status)
    if len(ended) < len(cells):
        return None
    values = [numbers(cell.objective) for cell in ended]
    if any(len(each) != num_metrics for each in values):
        return Outcome(state=TrialState.FAIL, values=None, word="no value")
    means = [math.fsum(column) / len(ended) for column in zip(*values, strict=True)]
    return Outcome(state=TrialState.COMPLETE, values=means, word="complete")


@dataclass(frozen=True, kw_only=True)
class Correction:
    """Makes the trials of a journal say what the ledger says."""

    dimensions: Dimensions
    """What is searched now."""
    cells: Mapping[Key, Cell]
    """The ledger."""
    num_metrics: int
    """How many."""

    def corrected(self, trials: Iterable[FrozenTrial]) -> list[FrozenTrial]:
        """The trials themselves where they are right, else open ones in their place.

        A trial goes whose choice was cut off by the end of the process, or is not offered now. One
        comes for cells that no trial accounts for: the journal was lost.
        """
        kept = [trial for trial in map(self._corrected, trials) if trial is not None]
        owned = {key for trial in kept for key in self._keys(trial)}
        for key, cell in self.cells.items():
            made = None if key in owned else self._of_cell(cell)
            if made is not None:
                kept.append(made)
                owned.update(self._keys(made))
        return kept

    def _corrected(self, trial: FrozenTrial) -> FrozenTrial | None:
        if trial.distributions == self.dimensions.distributions and self._is_right(trial):
            return trial
        if trial.params.keys() != self.dimensions.distributions.keys():
            return None
        repeats = {REPEATS: True} if not counts(trial) else {}
        return self._open(trial.params, repeats, trial)

    def _is_right(self, trial: FrozenTrial) -> bool:
        """An open trial is: its outcome is told when it is taken up again."""
        if trial.state == TrialState.RUNNING:
            return True
        outcome = outcome_of([self.cells.get(key) for key in self._keys(trial)], self.num_metrics)
        if outcome is None or outcome.state != trial.state:
            return False
        return outcome.values is None or outcome.values == trial.values

    def _of_cell(self, cell: Cell) -> FrozenTrial | None:
        try:
            return self._open(self.dimensions.params(cell.values), {}, None)
        except (KeyError, ValueError):
            return None

    def _open(
        self, params: Mapping[str, object], attrs: dict[str, bool], like: FrozenTrial | None
    ) -> FrozenTrial | None:
        distributions: dict[str, BaseDistribution] = dict(self.dimensions.distributions)
        try:
            return create_trial(
                state=TrialState.RUNNING,
                params=dict(params),
                distributions=distributions,
                user_attrs=attrs,
                system_attrs=like.system_attrs if like else None,
                intermediate_values=like.intermediate_values if like else None,
            )
        except ValueError:  # not offered now
            return None

    def _keys(self, trial: FrozenTrial) -> list[Key]:
        return [key_of(cell) for cell in self.dimensions.cells(trial.params)]
