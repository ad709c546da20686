"""Dealing out, and the world of one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfdistill_cli.training.world import World, deal

CHECKOUT = Path(__file__).parents[2]
COSTS = st.lists(st.integers(1, 1000).map(float), max_size=40)


@given(COSTS, st.integers(1, 8))
def test_nobody_has_much_more_than_the_others(costs: list[float], size: int) -> None:
    owners = deal(costs, size)
    loads = [sum(c for c, o in zip(costs, owners, strict=True) if o == r) for r in range(size)]
    assert len(owners) == len(costs)
    assert sum(loads) == sum(costs)
    assert max(loads) - min(loads) <= max(costs, default=0.0)


@given(COSTS, st.integers(1, 8), st.data())
def test_units_stay_together(costs: list[float], size: int, data: st.DataObject) -> None:
    units = data.draw(st.lists(st.integers(0, 5), min_size=len(costs), max_size=len(costs)))
    owners = deal(costs, size, units)
    assert len(set(zip(units, owners, strict=True))) == len(set(units))
    assert all(0 <= owner < size for owner in owners)


def test_equal_costs_go_round() -> None:
    assert deal([1.0] * 5, 2) == [0, 1, 0, 1, 0]
    assert deal([1.0, 1.0, 5.0], 2) == [1, 1, 0]


def test_one_process_does_everything_itself() -> None:
    world = World()
    assert world.shared([1, 2, 3], lambda items: [2 * x for x in items]) == [2, 4, 6]
    assert world.mine([1, 2, 3]) == [1, 2, 3]
    assert world.sum([1.5, 2.0]) == [1.5, 2.0]
    assert (world.gather("x"), world.agree(True), world.agree(False)) == (["x"], True, False)
    with pytest.raises(ValueError, match="told"):
        world.from_first(lambda: int("told"))


def test_one_process_loads_nothing_that_communicates() -> None:
    code = (
        "import sys, selfdistill_cli.training.start, selfdistill_cli.launching.inline\n"
        "names = ('deepspeed', 'selfdistill_cli.training.process_world')\n"
        "assert not [name for name in names if name in sys.modules]\n"
        "import torch.distributed as dist; assert not dist.is_initialized()"
    )
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)
