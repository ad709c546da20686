"""Which two siblings a preference term compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from selfdistill_cli.core.types import Group, Sample
from selfdistill_cli.methods.arrays import present


def with_pairs(groups: Sequence[Group]) -> list[Group]:
    """Number the best and the worst sibling of every group by mean advantage over their tokens.

    Ties go to the lower sibling. A group whose advantages do not differ in sign has no pair. The
    other siblings keep -1: they are not learned from, but credit may still be fitted to them.
    """
    out: list[Group] = []
    number = 0
    for group in groups:
        best, worst = _best_and_worst(group)
        if best is None:
            out.append(group)
            continue
        samples = (
            replace(x, pair=number) if x.sibling in (best, worst) else x for x in group.samples
        )
        out.append(replace(group, samples=tuple(samples)))
        number += 1
    return out


def _best_and_worst(group: Group) -> tuple[int | None, int | None]:
    totals = {sibling: _mean(group, sibling) for sibling in {s.sibling for s in group.samples}}
    totals = dict(sorted(totals.items()))
    if not totals or max(totals.values()) <= 0 or min(totals.values()) >= 0:
        return None, None
    return max(totals, key=totals.__getitem__), min(totals, key=totals.__getitem__)


def _mean(group: Group, sibling: int) -> float:
    """A sum would prefer long answers among the good and short ones among the bad."""
    own = [sample for sample in group.samples if sample.sibling == sibling]
    total = sum(float(present(x.advantages).sum(dtype=np.float64)) for x in own)
    return total / max(1, sum(int(x.action_mask.sum()) for x in own))


def pair_numbers(samples: Sequence[Sample]) -> list[int] | None:
    """Number of the unit that each sample must stay in, None if no sample has a pair."""
    if all(sample.pair < 0 for sample in samples):
        return None
    alone = 1 + max(sample.pair for sample in samples)
    return [s.pair if s.pair >= 0 else alone + i for i, s in enumerate(samples)]
