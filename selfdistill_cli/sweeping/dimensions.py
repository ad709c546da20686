"""From the words of a command line to what Optuna searches, and back to words."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hydra.core.override_parser.types import RangeSweep
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from selfdistill_cli.config.axes import Axis, Interval, Space
from selfdistill_cli.core.errors import ConfigError, did_you_mean

TAGS = ("log",)


@dataclass(frozen=True, kw_only=True)
class Dimensions:
    """What is searched, and what is averaged over."""

    distributions: Mapping[str, BaseDistribution]
    """By key as typed, in that order."""
    words: Mapping[str, Callable[[Any], str]]
    """For each key: from a value to what stands behind `key=`; it reads back as the same value."""
    repeated: Sequence[Mapping[str, str]]
    """Each combination of the values that are averaged over; one empty one if there are none."""
    order: Sequence[str]
    """All swept keys in the order of typing."""

    @property
    def size(self) -> float:
        """How many different trials there are; inf with a continuous key."""
        return math.prod(_size(each) for each in self.distributions.values())

    def cells(self, params: Mapping[str, Any]) -> list[dict[str, str]]:
        """The cells of a trial."""
        chosen = {key: self.words[key](value) for key, value in params.items()}
        return [{key: {**chosen, **repeat}[key] for key in self.order} for repeat in self.repeated]

    def params(self, values: Mapping[str, str]) -> dict[str, Any]:
        """What was chosen for a cell; raises KeyError, ValueError if nothing could have been."""
        return {key: _kind(each)(values[key]) for key, each in self.distributions.items()}


def read(space: Space, averaged: Sequence[str]) -> Dimensions:
    """Read a space; raises ConfigError that names the key."""
    swept = {axis.key: axis for axis in space.axes}
    intervals = {interval.key: interval for interval in space.intervals}
    _check_averaged(averaged, swept, intervals)
    distributions: dict[str, BaseDistribution] = {}
    words: dict[str, Callable[[Any], str]] = {}
    order = [o.get_key_element() for o in space.typed if o.is_sweep_override()]
    ranges = {o.get_key_element(): o.value() for o in space.typed if o.is_sweep_override()}
    for key in order:
        if key in intervals:
            distributions[key], words[key] = _interval(intervals[key]), repr
        elif key not in averaged:
            distributions[key], words[key] = _axis(swept[key], ranges[key])
    if not distributions:
        raise ConfigError(
            f"-m: nothing is searched: {', '.join(order)} is averaged over (sweep.averaged); give "
            "another key several values or an interval, or take sweep=grid"
        )
    over = [[(key, text) for text in swept[key].values] for key in order if key in averaged]
    return Dimensions(
        distributions=distributions,
        words=words,
        repeated=[dict(each) for each in itertools.product(*over)],
        order=order,
    )


def _check_averaged(
    averaged: Sequence[str], swept: Mapping[str, Axis], intervals: Mapping[str, Interval]
) -> None:
    for key in averaged:
        if key in intervals:
            raise ConfigError(
                f"{key}: an interval cannot be averaged over (sweep.averaged); expected values, as "
                f"in {key}=0,1,2"
            )
        if key not in swept and key != "seed":
            near = did_you_mean(key, [*swept, *intervals])
            raise ConfigError(
                f"sweep.averaged: '{key}' is not swept{near}; expected keys with several values"
            )


def _interval(interval: Interval) -> BaseDistribution:
    log = _is_log(interval.key, interval.tags)
    key, low, high = interval.key, interval.low, interval.high
    if not low < high or not math.isfinite(high - low):
        raise ConfigError(f"{key}: got interval({low:g},{high:g}), expected a smaller number first")
    if log and low <= 0:
        raise ConfigError(
            f"{key}: got tag(log, interval({low:g},{high:g})), expected numbers above 0, for a "
            "logarithm"
        )
    if isinstance(low, int) and isinstance(high, int):
        return IntDistribution(low, high, log=log)
    return FloatDistribution(low, high, log=log)


def _axis(axis: Axis, typed: Any) -> tuple[BaseDistribution, Callable[[Any], str]]:
    """A range keeps its order and distances; any other values are only different."""
    log = _is_log(axis.key, axis.tags)
    if not isinstance(typed, RangeSweep) or len(axis.values) < 2:
        if log:
            raise ConfigError(
                f"{axis.key}: the tag log is for an interval or a range of whole numbers, not for "
                f"{', '.join(axis.values)}"
            )
        return CategoricalDistribution(axis.values), str
    numbers = {float(text): text for text in axis.values}
    low, step = min(numbers), abs(Decimal(str(typed.step)))
    whole = all(number.is_integer() for number in numbers)
    if log and not (whole and step == 1 and low > 0):
        raise ConfigError(
            f"{axis.key}: the tag log needs a range of whole numbers above 0 without gaps, or an "
            "interval"
        )
    high = float(Decimal(str(low)) + step * (len(numbers) - 1))
    return (
        IntDistribution(int(low), int(high), log=log, step=int(step))
        if whole
        else FloatDistribution(low, high, step=float(step))
    ), lambda value: numbers[min(numbers, key=lambda number: abs(number - value))]


def _is_log(key: str, tags: frozenset[str]) -> bool:
    for tag in sorted(tags - set(TAGS)):
        near = did_you_mean(tag, TAGS)
        raise ConfigError(f"{key}: there is no tag '{tag}'{near} (known: {', '.join(TAGS)})")
    return "log" in tags


def _kind(distribution: BaseDistribution) -> type[Any]:
    if isinstance(distribution, CategoricalDistribution):
        return str
    return int if isinstance(distribution, IntDistribution) else float


def _size(distribution: BaseDistribution) -> float:
    if isinstance(distribution, CategoricalDistribution):
        return len(distribution.choices)
    if isinstance(distribution, IntDistribution):
        return (distribution.high - distribution.low) // distribution.step + 1
    step = getattr(distribution, "step", None)
    if isinstance(distribution, FloatDistribution) and step:
        return round((distribution.high - distribution.low) / step) + 1
    return math.inf
