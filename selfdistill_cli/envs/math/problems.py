"""Problems, wherever they come from, and the splits that a hash puts them into."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

DATA_SPLITS = ("train", "validation", "test")


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


def split_of(problem: Problem, validation_fraction: float, test_fraction: float) -> str:
    """Return the split: the problem's own, else by a hash of its id, as `env=code` has it."""
    if problem.split is not None:
        return problem.split
    place = int.from_bytes(hashlib.sha256(problem.id.encode()).digest()[:8], "big") / 2**64
    if place < test_fraction:
        return "test"
    return "validation" if place < test_fraction + validation_fraction else "train"


def name_of(text: str) -> str:
    """Return a short name for a question: 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:16]


def in_splits(
    problems: Iterable[Problem], validation_fraction: float, test_fraction: float
) -> dict[str, Sequence[Problem]]:
    """Return the problems by split, in their order."""
    found: dict[str, list[Problem]] = {split: [] for split in DATA_SPLITS}
    for problem in problems:
        found[split_of(problem, validation_fraction, test_fraction)].append(problem)
    return dict(found)
