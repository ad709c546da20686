"""A search with Optuna: its journal remembers the choices, the ledger what came of them.

A trial is a choice of values and runs one cell, or one for each combination of what is averaged
over. Where journal and ledger differ (cells that were started again, more steps, another seed to
average over, a journal that was lost), the ledger is right.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from optuna.trial import FrozenTrial, Trial, TrialState

from selfdistill_cli.analysis.ledger import Cell, Status
from selfdistill_cli.config.axes import Space
from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.sweeping import dimensions
from selfdistill_cli.sweeping.journal import open_study, rewrite
from selfdistill_cli.sweeping.proposals import Planned
from selfdistill_cli.sweeping.readings import Follower
from selfdistill_cli.sweeping.samplers import make_pruner, make_sampler
from selfdistill_cli.sweeping.search_settings import SearchSettings
from selfdistill_cli.sweeping.trials import (
    REPEATS,
    Correction,
    Key,
    Outcome,
    counts,
    key_of,
    outcome_of,
)

MOST_REPEATS = 20
"""Repeated choices in a row that do not count: they run nothing."""


class Search:
    """A `Proposer`."""

    def __init__(
        self, settings: SearchSettings, space: Space, known: Mapping[str, Cell], folder: Path
    ):
        self.settings = settings
        self.folder = folder
        self.dimensions = dimensions.read(space, settings.averaged)
        self.metrics = settings.metric if isinstance(settings.metric, list) else [settings.metric]
        self.cells: dict[Key, Cell] = {key_of(cell.values): cell for cell in known.values()}
        self.running: dict[int, list[dict[str, str]]] = {}
        self.pruned: set[int] = set()
        self.stopping: set[str] = set()
        self.readings: dict[int, dict[Key, dict[int, float]]] = {}
        self._open()
        self.limit = min(settings.trials, self.dimensions.size)
        self.count = sum(map(counts, self._trials()))

    # The protocol.

    def planned(self) -> list[Planned]:
        """None: cells are proposed one by one."""
        return []

    def next(self) -> Planned | None:
        """The next cell of a trial that runs, or the first one of a new trial."""
        repeats = 0
        while (missing := self._missing()) is None:
            if self.count >= self.limit:
                return None
            repeats = repeats + 1 if self._ask(free=repeats < MOST_REPEATS) else 0
        return missing

    def named(self, name: str, planned: Planned) -> None:
        """Remember the cell by its name."""
        self.cells[key_of(planned.values)] = Cell(
            name=name, values=planned.values, run=str(self.folder / name)
        )

    def finished(self) -> bool:
        """When all trials were asked for, with all their cells."""
        return self.count >= self.limit and self._missing() is None

    def tell(self, name: str, status: Status, objective: float | list[float] | None) -> None:
        """Write the outcome of a trial down as soon as it is known."""
        key = self._key(name)
        self.cells[key] = replace(self.cells[key], status=status, objective=objective)
        for number in self._owners(key):
            if status == "done":  # it ended before it could be given up
                self.pruned.discard(number)
            self._settle(number)

    def should_stop(self, name: str, step: int, value: float | None) -> bool:
        """Whether the pruner gives its trial up; a step counts once all cells of it have it."""
        if self.settings.pruner != "none" and name not in self.stopping:
            key = self._key(name)
            for number in self._owners(key):
                if self._is_pruned(number, key, step, value):
                    self.pruned.add(number)
                    cells = map(key_of, self.running[number])
                    self.stopping.update(self.cells[k].name for k in cells if k in self.cells)
        return name in self.stopping

    def report(self) -> list[str]:
        """Counts, and the best trial, or all that no other one beats in every metric."""
        trials = [trial for trial in self._trials() if counts(trial)]
        words = Counter(trial.user_attrs.get("outcome", "not ended") for trial in trials)
        told = ", ".join(f"{count} {word}" for word, count in words.items()) or "none yet"
        best = [trial for trial in self.study.best_trials if counts(trial)]
        if len(self.metrics) == 1:
            shown = [line for trial in best[:1] for line in self._described("best: ", trial)]
        else:
            shown = [f"beaten by no other in {' and '.join(self.metrics)}: {len(best)}"]
            shown += [line for trial in best for line in self._described("", trial)]
        return [f"{len(trials)} of {self.limit:g} trials: {told}", *shown]

    # One trial.

    def _missing(self) -> Planned | None:
        """A cell of a running trial that was not proposed yet."""
        for number, cells in self.running.items():
            for values in cells if number not in self.pruned else ():
                if key_of(values) not in self.cells:
                    return Planned(values=values)
        return None

    def _ask(self, free: bool) -> bool:
        """Choose values for a new trial; returns whether they repeat a trial that has ended.

        A repeat that is `free` does not count.
        """
        self.study.sampler = make_sampler(self.settings, len(self._trials()))
        trial = self.study.ask(dict(self.dimensions.distributions))
        cells = self.dimensions.cells(trial.params)
        repeats = self._outcome(cells) is not None
        if repeats and free:
            trial.set_user_attr(REPEATS, True)
        else:
            self.count += 1
        self._enter(trial.number, cells)
        return repeats

    def _enter(self, number: int, cells: list[dict[str, str]]) -> None:
        self.running[number] = cells
        self._settle(number)

    def _settle(self, number: int) -> None:
        """End a trial whose outcome is known."""
        outcome = self._outcome(self.running[number])
        if outcome is None:
            return
        keys = map(key_of, self.running.pop(number))
        trial = self._trial(number)
        trial.set_user_attr("outcome", outcome.word)
        trial.set_user_attr("cells", [self.cells[key].name for key in keys if key in self.cells])
        self.study.tell(number, outcome.values, state=outcome.state)

    def _outcome(self, cells: list[dict[str, str]]) -> Outcome | None:
        return outcome_of([self.cells.get(key_of(values)) for values in cells], len(self.metrics))

    def _is_pruned(self, number: int, key: Key, step: int, value: float | None) -> bool:
        read = self.readings.get(number)
        if read is None:  # what earlier starts have come to, of all its cells
            keys = map(key_of, self.running[number])
            read = self.readings[number] = {each: self._read(each) for each in keys}
        if value is not None and math.isfinite(value):
            read[key][step] = value
        reached = [values[step] for values in read.values() if step in values]
        trial = self._trial(number)
        if len(reached) == len(read) and step not in self._trials()[number].intermediate_values:
            trial.report(math.fsum(reached) / len(reached), step)
        return trial.should_prune()

    def _read(self, key: Key) -> dict[int, float]:
        if key not in self.cells:
            return {}
        news = Follower(Path(self.cells[key].run), self.metrics[0], 0).news()
        return {step: value for step, value in news if value is not None}

    def _described(self, before: str, trial: FrozenTrial) -> list[str]:
        metrics = zip(self.metrics, trial.values, strict=True)
        values = ", ".join(f"{metric} {value:.6g}" for metric, value in metrics)
        words = self.dimensions.words
        chosen = " ".join(f"{key}={words[key](value)}" for key, value in trial.params.items())
        return [f"{before}trial {trial.number}: {values}", f"    {chosen}"]

    def _key(self, name: str) -> Key:
        return next(key for key, cell in self.cells.items() if cell.name == name)

    def _owners(self, key: Key) -> list[int]:
        return [n for n, cells in self.running.items() if key in map(key_of, cells)]

    def _trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    def _trial(self, number: int) -> Trial:
        return Trial(self.study, self._trials()[number]._trial_id)

    # What earlier starts left.

    def _open(self) -> None:
        """Open the study, let it say what the ledger says, and take up what has not ended."""
        given = self.settings.direction
        directions = given if isinstance(given, list) else [given]
        self.study = open_study(self.folder, directions)
        self._check_goal()
        correction = Correction(
            dimensions=self.dimensions, cells=self.cells, num_metrics=len(self.metrics)
        )
        trials = self._trials()
        corrected = correction.corrected(trials)
        if [id(trial) for trial in corrected] != [id(trial) for trial in trials]:
            self.study = rewrite(self.folder, self.study, corrected)
        self.study.pruner = make_pruner(self.settings)
        self.study.sampler = make_sampler(self.settings, 0)
        for trial in self._trials():
            if trial.state == TrialState.RUNNING:
                self._enter(trial.number, self.dimensions.cells(trial.params))

    def _check_goal(self) -> None:
        """One study has one goal. Raises ConfigError."""
        before = self.study.user_attrs.get("goal")
        names = ("metric", "objective", "direction")
        goal = {name: getattr(self.settings, name) for name in names}
        if before is None:
            self.study.set_user_attr("goal", goal)
            return
        for name, found in goal.items():
            if before[name] != found:
                raise ConfigError(
                    f"sweep.{name}: got {found}, but the search in {self.folder} goes by "
                    f"{before[name]}; expected the same, or another sweep.name"
                )
