"""Ranking siblings once more by their reweighted advantages."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from making import make_group

from selfdistill_cli.methods.advantage import GroupAdvantage
from selfdistill_cli.methods.arrays import all_samples
from selfdistill_cli.methods.reweighting import CREDIT, advantages_of, masks, reweighted
from selfdistill_cli.methods.settings import GroupAdvantageSettings


def build(mode: str, rank_by: str) -> GroupAdvantage:
    return GroupAdvantage(GroupAdvantageSettings(mode=mode, epsilon=1e-4, rank_by=rank_by))


def ranked(part: GroupAdvantage, groups, weights_by_row):
    """Advantage of each row's first active token after weights and the second comparison."""
    first = part.assign(groups)
    samples = all_samples(first)
    weights = torch.ones_like(advantages_of(samples))
    for row, value in enumerate(weights_by_row):
        weights[row] = value
    again = part.after_credit(reweighted(first, weights, 1.0, 0.0)[0])
    assert masks(samples).any()
    return [
        float(s.advantages[s.action_mask][0] / s.weights[CREDIT][s.action_mask][0])
        for s in all_samples(again)
    ]


@pytest.mark.parametrize(("mode", "order"), [("rank", [1 / 3, 1.0]), ("pairwise", [0.0, 1.0])])
def test_weights_turn_an_order_round(mode, order):
    groups = [make_group("a", [1.0, 0.9, 0.0, 0.0])]
    found = ranked(build(mode, "reweighted_mean"), groups, [0.5, 1.5, 1.0, 1.0])
    np.testing.assert_allclose(found[:2], order, rtol=1e-6)
    found = ranked(build(mode, "reward"), groups, [0.5, 1.5, 1.0, 1.0])
    assert found[0] > found[1]


def test_rounding_ranks_nobody():
    noise = [1 + 1e-7 * k for k in (0, 3, -2, 1, 2, -1)]
    groups = [make_group("a", [1.0, 0.5, 0.5, 0.5, 0.0, 0.0])]
    found = ranked(build("rank", "reweighted_mean"), groups, noise)
    np.testing.assert_allclose(found, [1.0, 0.2, 0.2, 0.2, -0.8, -0.8], rtol=1e-5)


def test_flat_groups_stay_at_zero():
    groups = [make_group("a", [0.5, 0.5, 0.5]), make_group("b", [None, None])]
    found = ranked(build("rank", "reweighted_total"), groups, [0.5, 1.0, 2.0])
    assert found == [0.0, 0.0, 0.0]


def test_totals_count_length_and_means_do_not():
    groups = [make_group("abc", [1.0, 1.0, 0.0])]
    lengths = [int(s.action_mask.sum()) for s in groups[0].samples]
    assert lengths[0] != lengths[1]
    by_mean = ranked(build("rank", "reweighted_mean"), groups, [1.0, 1.0, 1.0])
    by_total = ranked(build("rank", "reweighted_total"), groups, [1.0, 1.0, 1.0])
    assert by_mean[0] == pytest.approx(by_mean[1])
    assert (by_total[0] > by_total[1]) == (lengths[0] > lengths[1])
