"""Answers compared: exact match and F1 after the usual normalisation (SQuAD)."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation, " "))


@lru_cache(maxsize=2**15)
def normalised(text: str) -> str:
    """Return the text in lower case without accents, punctuation, articles and extra spaces.

    A text that would vanish, such as `The`, keeps its articles. Digits keep together: 1,591 is
    1591.
    """
    text = unicodedata.normalize("NFKD", text).casefold()
    text = "".join(c for c in text if not unicodedata.combining(c))
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    plain = text.translate(PUNCTUATION)
    return " ".join(ARTICLES.sub(" ", plain).split()) or " ".join(plain.split())


def exact_match(answer: str, accepted: Iterable[str]) -> bool:
    """Whether the answer is one of the accepted ones."""
    given = normalised(answer)
    return bool(given) and any(given == normalised(text) for text in accepted)


def f1(answer: str, accepted: Iterable[str]) -> float:
    """Return the best harmonic mean of word precision and recall against an accepted answer."""
    return max(
        (_f1(normalised(answer).split(), normalised(a).split()) for a in accepted), default=0
    )


def _f1(given: list[str], expected: list[str]) -> float:
    common = sum((Counter(given) & Counter(expected)).values())
    return 2 * common / (len(given) + len(expected)) if common else 0.0


def contains(text: str, answer: str) -> bool:
    """Whether the text holds the answer as whole words, after normalisation."""
    return f" {normalised(answer)} " in f" {normalised(text)} "
