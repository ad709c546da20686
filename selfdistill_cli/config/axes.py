"""What `-m` sweeps: which words have several values, and which values they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Glob, IntervalSweep, Override, Sweep, ValueType
from hydra.errors import HydraException

from selfdistill_cli.config import catalog, overrides
from selfdistill_cli.core.errors import ConfigError

OWN_KEYS = ("run.root", "sweep", "launcher.jobs", "resume")
"""Keys of the sweep itself, which cannot differ from cell to cell."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A key with several values."""

    key: str
    """As typed, prefixes and package included: `optim.lr`, `+method.x`, `method/credit`."""
    words: tuple[Override, ...]
    """The word for each of them; no value twice."""
    is_group: bool
    """Whether the values are options of a group."""
    tags: frozenset[str]
    """Of `tag(log, ...)`."""

    @property
    def values(self) -> tuple[str, ...]:
        """What stands behind `key=` in each word."""
        return tuple(word.get_value_element_as_str() for word in self.words)


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A key with any value between two numbers."""

    key: str
    """As typed."""
    low: float
    """Smallest value; an int if only whole numbers are meant."""
    high: float
    """Largest value."""
    tags: frozenset[str]
    """Of `tag(log, interval(...))`."""


@dataclass(frozen=True, kw_only=True)
class Space:
    """A command line with -m: what is fixed and what is swept."""

    typed: tuple[Override, ...]
    """Every word in the order in which it was typed; of a repeated one the last."""
    axes: tuple[Axis, ...]
    """Words with several values, in that order."""
    intervals: tuple[Interval, ...]
    """Words with an interval."""

    @property
    def fixed(self) -> dict[str, str]:
        """Words with one value, `key: text`; a deleted one, `~key`, has the text ''."""
        words = [word for word in self.typed if not word.is_sweep_override()]
        return {
            word.get_key_element(): (
                "" if word.value_type is None else word.get_value_element_as_str()
            )
            for word in words
        }

    def filled(self, values: Mapping[str, Override]) -> list[Override]:
        """The words with one value in the place of each swept one."""
        return [values[o.get_key_element()] if o.is_sweep_override() else o for o in self.typed]


def read_space(words: Sequence[str], folders: Sequence[Path]) -> Space:
    """Take the words of a command line apart.

    Raises ConfigError for a word that cannot be read, an option that does not exist, an axis
    without values, and one that belongs to the sweep itself.
    """
    typed = overrides.last_of_each(overrides.parse(words), folders)
    last = {override.get_key_element(): override for override in typed}
    groups = set(catalog.groups(folders))
    axes: list[Axis] = []
    intervals: list[Interval] = []
    options = [o for o in last.values() if not o.is_sweep_override()]
    for override in last.values():
        _check_own(override)
        if not override.is_sweep_override():
            continue
        sweep = override.value()
        tags = frozenset(sweep.tags if isinstance(sweep, Sweep) else ())
        key = override.get_key_element()
        if isinstance(sweep, IntervalSweep):
            assert sweep.start is not None
            assert sweep.end is not None
            intervals.append(Interval(key=key, low=sweep.start, high=sweep.end, tags=tags))
            continue
        each = _singles(override, folders)
        options += each
        is_group = override.key_or_group in groups
        axes.append(Axis(key=key, words=tuple(each), is_group=is_group, tags=tags))
    overrides.check_groups(options, folders)
    if not axes and not intervals:
        raise ConfigError(
            "-m: no key has several values; give one, for example seed=0,1,2 or method=gear,grpo, "
            "or leave -m out"
        )
    return Space(typed=tuple(last.values()), axes=tuple(axes), intervals=tuple(intervals))


def _singles(override: Override, folders: Sequence[Path]) -> list[Override]:
    """One word for each distinct value of a swept one. Raises ConfigError if there are none."""
    found: dict[str, Override] = {}
    try:
        for value in _elements(override, folders):
            single = dataclasses.replace(override, value_type=ValueType.ELEMENT, _value=value)
            text = single.get_value_element_as_str()
            single.input_line = f"{override.get_key_element()}={text}"
            found.setdefault(text, single)
    except (HydraException, ArithmeticError, ValueError) as error:
        raise ConfigError(f"'{override.input_line}' has no values: {error}") from error
    if not found:
        raise ConfigError(
            f"'{override.input_line}' has no values; expected some, as in {override.key_or_group}="
            "A,B or range(START,STOP)"
        )
    return list(found.values())


def _elements(override: Override, folders: Sequence[Path]) -> Sequence[Any]:
    value = override.value()
    if isinstance(value, Glob):  # Hydra asks a loader for the options; the catalogue knows them
        return value.filter(catalog.options(folders, override.key_or_group))
    return list(override.sweep_iterator())


def _check_own(override: Override) -> None:
    key = override.key_or_group
    if key == "run.name":
        raise ConfigError(
            f"run.name: got '{override.get_value_string()}', which would be the name of every run; "
            "cells are named by what is swept, and the sweep with sweep.name=NAME"
        )
    own = any(key == word or key.startswith((f"{word}.", f"{word}/")) for word in OWN_KEYS)
    if own and override.is_sweep_override():
        raise ConfigError(
            f"{key}: got '{override.get_value_string()}', expected one value for the whole sweep"
        )
