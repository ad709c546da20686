"""Problems, wherever they come from."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A question with its final answer, and what is known about the way to it."""

    id: str
    """Stable and unique; decides the split unless `split` does."""
    question: str
    """What the agent is asked."""
    answer: str | None
    """The final answer alone; None where only a scorer knows what is right."""
    working: str = ""
    """The way to the answer, without the answer's own line; may be empty."""
    evidence: tuple[str, ...] = ()
    """Intermediate results, one line each."""
    skill: str | None = None
    """How problems of this kind are solved, in a line."""
    kind: str = ""
    """What sort of problem it is."""
    split: str | None = None
    """The split that the problem's source names."""
    index: int = -1
    """Place in the generator that made it; for its scorer."""


def name_of(text: str) -> str:
    """Return a short name for a question: 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:16]
