"""Worlds that do not exist: the same attributes, random names, so that nothing can be memorised."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from selfdistill_cli.core.seeds import seed_for, stream
from selfdistill_cli.envs.search.facts import Entity

STARTS = (*"bdfghjklmnprstvwz", "br", "dr", "fl", "gl", "kr", "pl", "sk", "tr")
VOWELS = (*"aeiouaeio",)
ENDS = (*"nrlsmxk", "th", "nd")
WORLDS = ("train", "validation", "test", "demonstrations", "practice")
"""Parts with a made-up world each."""


def world_of(name: str) -> str:
    """Return the part whose world a name may stand in, a function of the name alone."""
    return WORLDS[seed_for("made-up name", name) % len(WORLDS)]


class _Names:
    """Draws names of one part that were not drawn before."""

    def __init__(self, rng: Any, part: str) -> None:
        self._rng, self._part, self._taken = rng, part, set[str]()

    def _pick(self, options: Sequence[str]) -> str:
        return options[int(self._rng.integers(len(options)))]

    def word(self, syllables: int = 2) -> str:
        """Return a new capitalised word, a longer one where the short ones are used up."""
        for draw in count():
            parts = [
                self._pick(STARTS) + self._pick(VOWELS) for _ in range(syllables + draw // 100)
            ]
            word = ("".join(parts) + self._pick(ENDS)).capitalize()
            if word not in self._taken and world_of(word) == self._part:
                self._taken.add(word)
                return word
        raise AssertionError

    def letters(self, use: str) -> str:
        """Return two capital letters that are new for that use, more where those are used up."""
        for draw in count():
            length = 2 + draw // 20
            text = "".join(chr(65 + int(self._rng.integers(26))) for _ in range(length))
            if use + text not in self._taken:
                self._taken.add(use + text)
                return text
        raise AssertionError


def fictional_world(seed: int, part: str, size: int) -> tuple[Entity, ...]:
    """Return `size` countries, and a third as many elements, of one part; no word that is drawn
    for a name stands in two parts' worlds."""
    rng = stream(seed, "fictional world", part)
    names = _Names(rng, part)
    countries = [names.word() for _ in range(size)]
    borders = _borders(countries, rng)
    found = [
        Entity(
            name=name, kind="country", part=part, borders=borders[name], notes={},
            facts=_country(name, countries, names, rng),
        )
        for name in countries
    ]  # fmt: skip
    elements = [names.word() + "ium" for _ in range(size // 3)]
    for place, name in enumerate(elements):
        facts = {
            "number": place + 1, "symbol": names.letters("symbol"),
            "density": _drawn(rng, 5, 220) / 10, "weight": _drawn(rng, 10, 2500) / 10,
            "discoverer": f"{names.word(1)} {names.word()}",
            "year": _drawn(rng, 1650, 1990), "place": countries[_drawn(rng, 0, size)],
        }  # fmt: skip
        if place + 1 < len(elements):
            facts["after"] = elements[place + 1]
        found.append(
            Entity(name=name, kind="element", part=part, facts=facts, borders={}, notes={})
        )
    return tuple(found)


def _drawn(rng: Any, low: int, high: int) -> int:
    return int(rng.integers(low, high))


def _borders(countries: list[str], rng: Any) -> dict[str, dict[str, float]]:
    """Return a ring of countries with some shortcuts; a border has one length from both sides."""
    size = len(countries)
    pairs = [(i, (i + 1) % size) for i in range(size)]
    pairs += [(i, (i + 2) % size) for i in range(0, size, 3)]
    borders: dict[str, dict[str, float]] = {name: {} for name in countries}
    for first, second in pairs:
        length = _drawn(rng, 20, 3000)
        borders[countries[first]][countries[second]] = length
        borders[countries[second]][countries[first]] = length
    return borders


def _country(name: str, countries: list[str], names: _Names, rng: Any) -> dict[str, Any]:
    others = [other for other in countries if other != name]
    return {
        "area": _drawn(rng, 1000, 2_000_000), "population": _drawn(rng, 10_000, 90_000_000),
        "highest": f"Mount {names.word()}", "highest_m": _drawn(rng, 300, 8000),
        "mean_elevation": _drawn(rng, 20, 1800), "capital": names.word(),
        "anthem": f"{names.word()} {names.word(1)}", "currency": names.word(1).lower() + " crowns",
        "code": "." + names.letters("code").lower(), "prefix": names.letters("prefix"),
        "partner": others[_drawn(rng, 0, len(others))], "partner_share": _drawn(rng, 10, 80),
    }  # fmt: skip
