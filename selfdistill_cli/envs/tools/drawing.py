"""What templates draw from: made-up names, each of which belongs to one split alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from selfdistill_cli.core.seeds import seed_for
from selfdistill_cli.envs.tools.toolbox import CLOSES, DAYS, OPENS, State, empty_state

SPLITS = ("train", "validation", "test", "demonstrations", "practice")
FOLDERS = ("notes", "data", "logs", "lists")
PAIRS = (
    ("mi", "km"), ("km", "mi"), ("ft", "m"), ("lb", "kg"), ("oz", "g"), ("gal", "l"), ("h", "min"),
    ("C", "F"), ("F", "C"), ("in", "cm"), ("kg", "lb"), ("m", "ft"),
)  # fmt: skip
Item = TypeVar("Item")


def split_of(name: str) -> str:
    """Return the split that a name belongs to, a function of the name alone."""
    return SPLITS[seed_for("tools name", name) % len(SPLITS)]


class Draw:
    """Draws for one task: no name, file or hour of the calendar comes twice."""

    def __init__(self, split: str, seed: int) -> None:
        """Start with an empty state."""
        self._random, self._split = random.Random(seed), split
        self._taken: set[str] = set()
        self._slots = [(day, hour) for day in DAYS for hour in range(OPENS, CLOSES - 1, 2)]
        self._random.shuffle(self._slots)
        self.state: State = empty_state()
        self.coin = self.whole(0, 1)
        """Drawn once, for values that go to and fro from case to case."""

    def name(self) -> str:
        """Return a new name of the split, such as `belu`."""
        while True:
            syllables = [
                self.one("bcdfghjklmnprstvwz") + self.one("aeiou") for _ in range(self.whole(2, 3))
            ]
            name = "".join(syllables)
            if name not in self._taken and split_of(name) == self._split:
                self._taken.add(name)
                return name

    def path(self, text: object | None = None) -> str:
        """Return a new path; with a text, a file with it is in the initial state."""
        path = f"{self.one(FOLDERS)}/{self.name()}.txt"
        if text is not None:
            self.state["files"][path] = str(text)
        return path

    def key(self, value: object | None = None) -> str:
        """Return a new key; with a value, it is in the initial store."""
        key = self.name()
        if value is not None:
            self.state["store"][key] = value
        return key

    def event(self, day: str | None = None) -> str:
        """Return the title of a new event in the initial calendar, where nothing else is."""
        title = self.name()
        at, start = self.slot(day)
        self.state["calendar"][title] = {"day": at, "start": start, "hours": self.whole(1, 2)}
        return title

    def slot(self, day: str | None = None) -> tuple[str, int]:
        """Return a day and an hour that stays free for two hours, and is given once."""
        found = next(slot for slot in self._slots if day is None or slot[0] == day)
        self._slots.remove(found)
        return found

    def day(self) -> str:
        """Return a day with most of its hours not yet given."""
        counts = {day: sum(slot[0] == day for slot in self._slots) for day in DAYS}
        return self.one([day for day in DAYS if counts[day] == max(counts.values())])

    def whole(self, low: int, high: int) -> int:
        """Return a whole number, both ends included."""
        return self._random.randint(low, high)

    def one(self, items: Sequence[Item]) -> Item:
        """Return one of the items."""
        return self._random.choice(items)

    def several(self, items: Sequence[Item], count: int) -> list[Item]:
        """Return different ones of the items."""
        return self._random.sample(items, count)

    def units(self) -> tuple[str, str]:
        """Return a unit and another that it can be converted to."""
        return self.one(PAIRS)
