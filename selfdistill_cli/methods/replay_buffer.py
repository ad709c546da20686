"""Groups of earlier steps, with what sampled them: tokens, log-probabilities, scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

import numpy as np
import torch

from selfdistill_cli.core import types
from selfdistill_cli.core.types import Group, Sample, Trajectory

TYPE, ARRAY, TUPLE = "__type__", "__array__", "__tuple__"


class ReplayBuffer:
    """At most `capacity` groups, none older than `max_staleness` steps.

    Hidden states, values and views are not kept: they belong to weights that are gone, so the
    judge phase computes them again. The recorded log-probabilities are those of the policy that
    sampled, which an importance ratio needs.
    """

    def __init__(self, capacity: int, max_staleness: int):
        self.capacity = capacity
        self.max_staleness = max_staleness
        self.groups: list[Group] = []

    def add(self, groups: Sequence[Group]) -> None:
        """Remember groups; the oldest make room."""
        self.groups = [*self.groups, *map(_bare, groups)][-self.capacity :]

    def drop_stale(self, step: int) -> None:
        """Forget groups that were sampled more than `max_staleness` steps before `step`."""
        self.groups = [g for g in self.groups if step - 1 - _version(g) <= self.max_staleness]

    def draw(self, count: int, random: np.random.Generator) -> list[Group]:
        """Return `count` different groups."""
        chosen = random.choice(len(self.groups), size=count, replace=False) if count else []
        return [self.groups[int(i)] for i in chosen]

    def state(self) -> list[Any]:
        """Plain containers and tensors."""
        return [_encode(group) for group in self.groups]

    def restore(self, state: Sequence[Any]) -> None:
        """Restore what `state` returned."""
        self.groups = [_decode(item) for item in state]


def _version(group: Group) -> int:
    return group.trajectories[0].policy_version if group.trajectories else 0


def _bare(group: Group) -> Group:
    """Without anything that belongs to the weights of its step."""
    return replace(
        group,
        trajectories=tuple(map(_bare_trajectory, group.trajectories)),
        samples=tuple(map(_bare_sample, group.samples)),
    )


def _bare_trajectory(trajectory: Trajectory) -> Trajectory:
    turns = [
        replace(turn, generation=replace(turn.generation, hidden=None)) for turn in trajectory.turns
    ]
    return replace(trajectory, turns=tuple(turns))


def _bare_sample(sample: Sample) -> Sample:
    return replace(
        sample, hidden=None, entropy=None, values=None, views={}, weights={}, old_logprobs=None,
        current_logprobs=None,
    )


def _encode(value: Any) -> Any:
    """To what `torch.load(weights_only=True)` gives back."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {TYPE: type(value).__name__, **fields}
    if isinstance(value, StrEnum):
        return {TYPE: type(value).__name__, "value": str(value)}
    if isinstance(value, np.ndarray):
        return {ARRAY: torch.from_numpy(value.copy())}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {key: _encode(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return {TUPLE: [_encode(item) for item in value]}
    return [_encode(item) for item in value] if isinstance(value, list) else value


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if ARRAY in value:
        return value[ARRAY].numpy()
    if TUPLE in value:
        return tuple(_decode(item) for item in value[TUPLE])
    fields = {key: _decode(item) for key, item in value.items() if key != TYPE}
    if TYPE not in value:
        return fields
    made = getattr(types, value[TYPE])
    return made(fields["value"]) if issubclass(made, StrEnum) else made(**fields)
