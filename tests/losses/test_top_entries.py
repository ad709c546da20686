"""Choice of the largest entries of a row, and the mass of the others."""

from __future__ import annotations

import math

import pytest
import torch

from selfdistill_cli.losses.distribution import divergence, top_ids, top_teacher


def test_a_small_tail_keeps_its_mass() -> None:
    """1 - sum is 0 here; the log-sum-exp of the other entries is not."""
    logits = torch.tensor([[60.0, 0.0, 0.0]])
    top = top_teacher(logits, torch.eye(3), None, temperature=1.0, k=1)
    assert top.tail_N.tolist() == [pytest.approx(math.log(2) - 60)]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([1.0, 3.0, 3.0, 3.0, 0.0], [1, 2]),
        ([2.0, 2.0, 2.0, 2.0, 2.0], [0, 1]),
        ([0.0, 1.0, 0.0, 5.0, 1.0], [1, 3]),
    ],
)
def test_ties_go_to_the_lowest_id(row: list[float], expected: list[int]) -> None:
    assert top_ids(torch.tensor([row]), torch.eye(5), None, 2).tolist() == [expected]


def test_ties_among_many_entries_and_closed_ones() -> None:
    many = torch.zeros(2, 1000).index_fill(1, torch.arange(0, 1000, 2), 1.0)
    assert top_ids(many, torch.eye(1000), None, 300).tolist() == [list(range(0, 600, 2))] * 2
    closed = torch.tensor([0.0, -math.inf, -math.inf])
    assert top_ids(torch.zeros(1, 3), torch.eye(3), closed, 2).tolist() == [[0, 1]]


def test_a_broken_row_gives_nan_and_not_a_crash() -> None:
    hidden = torch.tensor([[math.nan, 0.0, 1.0], [0.0, 0.0, 1.0]])
    top = top_teacher(hidden, torch.eye(3), None, temperature=1.0, k=2)
    assert top.ids_NK.tolist() == [[0, 1], [0, 2]]
    values = divergence(
        torch.zeros(2, 3), torch.eye(3), None, top, kind="forward", alpha=None, temperature=1.0
    )
    assert values.isnan().tolist() == [True, False]
