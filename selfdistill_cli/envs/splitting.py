"""Splits: which names there are, and which one a line of a file falls into."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from selfdistill_cli.core.errors import ConfigError, FieldError, did_you_mean
from selfdistill_cli.core.settings import in_range
from selfdistill_cli.envs.json_lines import Line

SPLITS = ("train", "validation", "test")
"""Splits of a file."""
Item = TypeVar("Item")


class Shares(Protocol):
    """The settings that say how large validation and test are."""

    @property
    def validation_fraction(self) -> float: ...
    @property
    def test_fraction(self) -> float: ...


def check_shares(settings: Shares) -> None:
    """Raise FieldError unless both shares are in [0, 1] and leave train the rest."""
    in_range(settings, 0, 1, "validation_fraction", "test_fraction")
    if settings.validation_fraction + settings.test_fraction > 1 + 1e-9:
        left = f"{1 - settings.validation_fraction:g}"
        expected = f"at most {left}, what env.validation_fraction leaves"
        raise FieldError("test_fraction", settings.test_fraction, expected)


def check_split(owner: str, split: str, splits: Sequence[str]) -> None:
    """Raise ConfigError, which begins with `owner` (`env=math`), unless there is such a split."""
    if split not in splits:
        raise ConfigError(
            f"{owner} has no split '{split}'; expected one of {', '.join(splits)}"
            + did_you_mean(split, splits)
        )


def hashed_split(name: str, validation_fraction: float, test_fraction: float) -> str:
    """Return the split that a hash of the name decides.

    It depends on no other name, so that a task stays in its split when others come and go.
    """
    place = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64
    if place < test_fraction:
        return "test"
    return "validation" if place < test_fraction + validation_fraction else "train"


def own_split(line: Line) -> str | None:
    """Return the split that a line names in its field `split`, None if it names none."""
    split = line.text("split", required=False)
    return None if split is None else known_split(line, split)


def known_split(line: Line, split: str) -> str:
    """Return what a line's field `split` says; raises DataError if it is no split."""
    if split not in SPLITS:
        near = did_you_mean(split, SPLITS)
        raise line.error("split", f"'{split:.60}'{near}", f"one of {', '.join(SPLITS)}")
    return split


def by_split(items: Iterable[tuple[str, Item]]) -> dict[str, tuple[Item, ...]]:
    """Return the items of every split of a file, in their order."""
    found: dict[str, list[Item]] = {split: [] for split in SPLITS}
    for split, item in items:
        found[split].append(item)
    return {split: tuple(chosen) for split, chosen in found.items()}
