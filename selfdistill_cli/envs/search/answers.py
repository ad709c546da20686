"""Answers compared: exact match and F1 after the usual normalisation (SQuAD)."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

ARTICLES = re.compile(r"\b(a|an|the)\b")
NUMBER = re.compile(r"(?<!\w)-?\d+(?:\.\d+)*")
PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation, " "))


@lru_cache(maxsize=2**15)
def normalised(text: str) -> str:
    """Return the text in lower case without accents, punctuation, articles and extra spaces.

    A text that would vanish, such as `The`, keeps its articles. Digits keep together: 1,591 is
    1591.
    """
    text = _folded(text).casefold()
    text = "".join(c for c in text if not unicodedata.combining(c))
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    plain = text.translate(PUNCTUATION)
    return " ".join(ARTICLES.sub(" ", plain).split()) or " ".join(plain.split())


def exact_match(answer: str, accepted: Iterable[str]) -> bool:
    """Whether the answer is one of the accepted ones.

    Numbers keep what punctuation means in them: -5 is not 5, and 3-5 is not 3.5.
    """
    given = normalised(answer), numbers_in(answer)
    return bool(given[0]) and any(given == (normalised(t), numbers_in(t)) for t in accepted)


def numbers_in(text: str) -> list[str]:
    """Return the numbers in a text as they are written, with sign and decimals."""
    return NUMBER.findall(re.sub(r"(?<=\d),(?=\d{3})", "", _folded(text)))


def _folded(text: str) -> str:
    """Return the text with compatible characters as one, and the minus sign as it is typed."""
    return unicodedata.normalize("NFKD", text).replace("\N{MINUS SIGN}", "-")


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
