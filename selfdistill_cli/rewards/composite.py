"""A reward that is a weighted sum of named components."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from selfdistill_cli.core.parts import build_part
from selfdistill_cli.core.protocols import RewardComponent
from selfdistill_cli.core.types import Score, Stop, Trajectory
from selfdistill_cli.rewards.collecting import Asked, collect
from selfdistill_cli.rewards.components import (
    Component,
    RunningMoments,
    composite,
    composite_batch,
)
from selfdistill_cli.rewards.errors import ErrorBook, ErrorPolicy, read_number
from selfdistill_cli.rewards.outcomes import MASKED, success_of
from selfdistill_cli.rewards.settings import ComponentSettings, CompositeSettings

Values = Mapping[str, float | None]
"""Each component's value of one trajectory, None where it has none."""


class Composite:
    """Asks each component, checks what it says, and adds; its memory is the normalisers'."""

    watched = "reward/success"
    """What must not collapse: sums may be negative, and normalised ones stay around 0."""

    def __init__(self, settings: CompositeSettings) -> None:
        """Build the components; raises ConfigError or DataError for one that cannot be built."""
        self.errors = ErrorBook()
        self.learning = True
        self._moments: dict[str, RunningMoments] = {}
        self._asked = {name: _asked(name, part) for name, part in settings.components.items()}
        self._components = [_arithmetic(name, p) for name, p in settings.components.items()]

    def score(self, trajectory: Trajectory) -> Score:
        """Score one trajectory, as a batch of one."""
        return self.score_many([trajectory])[0]

    def score_many(self, trajectories: Sequence[Trajectory]) -> list[Score]:
        """Score a batch: a normaliser sees all of it, and all before, then each sample.

        Equal values of a batch have equal totals. In an evaluation (`learning` is False) a sample
        meets what was learned, and itself. The total is None if the environment failed or no
        component has a value.
        """
        played = [t for t in trajectories if t.stop is not Stop.ENV_ERROR]
        columns = {n: collect(asked, played, self.errors) for n, asked in self._asked.items()}
        columns_by_row = zip(*columns.values(), strict=True)
        rows = [dict(zip(self._asked, row, strict=True)) for row in columns_by_row]
        scored = iter(zip(rows, self._totals(rows), strict=True))
        scores: list[Score] = []
        for trajectory in trajectories:
            if trajectory.stop is Stop.ENV_ERROR:
                scores.append(_without_total(trajectory, tuple(self._asked)))
            else:
                scores.append(_score(trajectory, *next(scored)))
        return scores

    def _totals(self, rows: Sequence[Values]) -> list[float]:
        if self.learning:
            totals, self._moments = composite_batch(rows, self._components, self._moments)
            return totals
        return [composite(row, self._components, self._moments)[0] for row in rows]

    def state_dict(self) -> dict[str, Any]:
        """Count, mean and squared deviations of every normalised component."""
        return {name: asdict(moments) for name, moments in self._moments.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._moments = {name: RunningMoments(**moments) for name, moments in state.items()}


def _score(trajectory: Trajectory, values: Values, total: float) -> Score:
    parts = {name: value for name, value in values.items() if value is not None}
    missing = tuple(name for name, value in values.items() if value is None)
    if not parts:
        return _without_total(trajectory, missing)
    success = success_of(trajectory.outcome)
    return Score(total=total, success=success, parts=parts, missing=missing)


def _without_total(trajectory: Trajectory, missing: tuple[str, ...]) -> Score:
    success = success_of(trajectory.outcome)
    return Score(total=None, success=success, parts={}, missing=missing)


def _arithmetic(name: str, settings: ComponentSettings) -> Component:
    clip = settings.clip
    return Component(
        name=name,
        weight=settings.weight,
        scale=settings.scale,
        clip=None if clip is None else (clip[0], clip[1]),
        normalize=settings.normalize,
    )


def _asked(name: str, settings: ComponentSettings) -> Asked[float | None]:
    key = f"reward.components.{name}"
    part: RewardComponent = build_part(key, settings, RewardComponent)
    return Asked(
        name=name,
        many=part.values,
        batched=True,
        read=_read,
        masked=lambda trajectory: None,
        zero=lambda trajectory: 0.0,
        policy=ErrorPolicy(
            on_error=settings.on_error,
            retries=settings.retries,
            error_budget=settings.error_budget,
            key=f"{key}.on_error",
            budget_key=f"{key}.error_budget",
        ),
        remember=lambda: lambda: None,
    )


def _read(value: Any) -> float | None:
    return None if value is MASKED else read_number(value)
