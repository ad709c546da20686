"""Can a reward rank at all? Pairs of a solved and a less solved attempt at the same task."""

from __future__ import annotations

from collections.abc import Sequence


def concordant_pairs(
    successes: Sequence[float], values: Sequence[float | None]
) -> tuple[float, int]:
    """(pairs in the right order, pairs) among the siblings of one group.

    A pair has two different successes; it is in the right order if the more successful one has
    the higher value, and half in order if the values are equal. Attempts without a value are in no
    pair. Over all groups this is the area under the ROC curve within groups: 0.5 cannot rank.
    """
    known = [(s, v) for s, v in zip(successes, values, strict=True) if v is not None]
    right, pairs = 0.0, 0
    for i, (success, value) in enumerate(known):
        for other_success, other in known[i + 1 :]:
            if success == other_success:
                continue
            pairs += 1
            better, worse = (value, other) if success > other_success else (other, value)
            right += 1.0 if better > worse else 0.5 if better == worse else 0.0
    return right, pairs
