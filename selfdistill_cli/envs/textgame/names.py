"""Invented words, of which no two splits share any."""

from __future__ import annotations

import functools
from itertools import product

import numpy as np

from selfdistill_cli.core.seeds import seed_for

SHARES = ("train",) * 6 + ("validation",) * 2 + ("test",) * 2
"""A word belongs to the split at its hash modulo 10."""
ROOMS = ("hall", "cellar", "attic", "study", "gallery", "library", "kitchen", "porch", "workshop",
         "den", "chapel", "pantry")  # fmt: skip
CONTAINERS = ("box", "chest", "crate", "drawer", "basket", "cabinet")
THINGS = ("lamp", "ring", "coin", "book", "cup", "bell", "map", "rope", "stone", "doll")
TREASURES = ("crown", "orb", "idol", "harp")
FOODS = ("root", "leaf", "bean", "egg", "fish", "bulb")
DISHES = ("stew", "pie", "soup")


@functools.cache
def words(split: str) -> tuple[str, ...]:
    """Return the invented words of a split, two syllables each, in a fixed order."""
    consonants, vowels, ends = "bdfgklmnprstvz", "aeiou", "klnrz"
    made = map("".join, product(consonants, vowels, consonants, vowels, ends))
    return tuple(w for w in made if SHARES[seed_for("textgame word", w) % len(SHARES)] == split)


class Namer:
    """Gives every thing of a game a word that no other thing of the game has."""

    def __init__(self, split: str, random: np.random.Generator) -> None:
        """Draw from the words of a split."""
        self._words, self._random = words(split), random
        self._taken: set[str] = set()

    def word(self) -> str:
        """Return a new word."""
        while True:
            word = self._words[int(self._random.integers(len(self._words)))]
            if word not in self._taken:
                self._taken.add(word)
                return word

    def thing(self, nouns: tuple[str, ...]) -> str:
        """Return a name such as `tavor lamp`."""
        return f"{self.word()} {nouns[int(self._random.integers(len(nouns)))]}"
