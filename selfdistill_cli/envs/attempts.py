"""Attempts of a group at one task, as hints speak of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from selfdistill_cli.core.seeds import seed_for
from selfdistill_cli.core.types import Score, Trajectory

Outcome = Mapping[str, Any]


class Attempts:
    """The graded attempts of a group, good and bad; those without an outcome say nothing."""

    def __init__(
        self,
        siblings: Sequence[Trajectory],
        scores: Sequence[Score],
        index: int | None,
        seed: int,
        *,
        graded_by: str,
    ) -> None:
        """Sort them. `graded_by`: what every outcome has that an environment gave."""
        known = [i for i, sibling in enumerate(siblings) if sibling.outcome.get(graded_by)]
        self._siblings, self._index, self._seed = siblings, index, seed
        self._good = [i for i in known if scores[i].success >= 1.0]
        self._bad = [i for i in known if scores[i].success < 1.0]

    def own_failed(self) -> Outcome | None:
        """Return the outcome of the attempt in question, None unless it failed."""
        return self._outcome(self._index) if self._index in self._bad else None

    def solved(self) -> Outcome | None:
        """Return the outcome of another attempt, a solved one."""
        return self._outcome(self._chosen([i for i in self._good if i != self._index], "good"))

    def pair(self) -> tuple[Outcome, Outcome] | None:
        """Return the outcomes of a solved and a failed attempt.

        Its own tokens in its prompt would say little: another solved one comes first, and its own
        failure.
        """
        others = [i for i in self._good if i != self._index]
        good = self._outcome(self._chosen(others or self._good, "good"))
        own = [self._index] if self._index in self._bad else self._bad
        bad = self._outcome(self._chosen(own, "bad"))
        return None if good is None or bad is None else (good, bad)

    def _chosen(self, places: Sequence[int | None], name: str) -> int | None:
        return places[seed_for(self._seed, name) % len(places)] if places else None

    def _outcome(self, place: int | None) -> Outcome | None:
        return None if place is None else self._siblings[place].outcome
