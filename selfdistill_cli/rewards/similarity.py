"""Likeness to a reference answer. A hint of a direction, never a goal: it rewards imitation."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from selfdistill_cli.core.types import Trajectory
from selfdistill_cli.rewards.outcomes import MASKED, each, program_of
from selfdistill_cli.rewards.settings import SimilarityComponent

WORD = re.compile(r"\w+|[^\w\s]")
LONGEST = 4


class Similarity:
    """BLEU or edit likeness of the program and the reference; masked without a reference."""

    def __init__(self, settings: SimilarityComponent) -> None:
        """Keep the settings."""
        self._settings = settings

    def values(self, trajectories: Sequence[Trajectory]) -> list[Any]:
        """One value in [0, 1] per trajectory."""
        return each(self._value, trajectories)

    def _value(self, trajectory: Trajectory) -> Any:
        if not trajectory.task.answer:
            return MASKED
        most = self._settings.max_words
        answer, reference = words(program_of(trajectory), most), words(trajectory.task.answer, most)
        measure = bleu if self._settings.measure == "bleu" else edit_likeness
        return measure(answer, reference)


def words(text: str, most: int) -> list[str]:
    """The first words and signs of a text."""
    return [match.group() for _, match in zip(range(most), WORD.finditer(text), strict=False)]


def bleu(answer: Sequence[str], reference: Sequence[str]) -> float:
    """Sentence BLEU (Papineni et al. 2002), n up to 4, with 1 added to counts above unigrams.

    The smoothing is that of Lin and Och (2004); without a shared word the value is 0.
    """
    if not answer or not reference:
        return 0.0
    logs = 0.0
    longest = min(LONGEST, len(answer), len(reference))
    for n in range(1, longest + 1):
        own, other = _ngrams(answer, n), _ngrams(reference, n)
        added = 0 if n == 1 else 1
        shared = (own & other).total() + added
        if shared == 0:
            return 0.0
        logs += math.log(shared / (own.total() + added))
    brevity = min(0.0, 1 - len(reference) / len(answer))
    return math.exp(logs / longest + brevity)


def _ngrams(row: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(row[i : i + n]) for i in range(len(row) - n + 1))


def edit_likeness(answer: Sequence[str], reference: Sequence[str]) -> float:
    """1 minus Levenshtein's distance over the longer length; 1 for two empty rows."""
    longer = max(len(answer), len(reference))
    if longer == 0:
        return 1.0
    row = list(range(len(reference) + 1))
    for i, word in enumerate(answer, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(reference, 1):
            cost = before + (word != other)
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, cost)
    return 1 - row[-1] / longer
