"""Equal to the last bit, or the place of the first difference."""

from __future__ import annotations

import pytest
import torch

from selfdistill_cli.training.state_compare import first_difference

STATE = {"a": [torch.tensor([1.0, float("nan")]), 0.1], "b": {"c": None, "d": (1, "x")}}


def test_equal_states_have_no_difference():
    copy = {"a": [STATE["a"][0].clone(), 0.1], "b": {"c": None, "d": (1, "x")}}
    assert first_difference(STATE, copy, "state") is None


@pytest.mark.parametrize(
    ("found", "where"),
    [
        ({**STATE, "a": [torch.tensor([1.0, 2.0]), 0.1]}, "state.a[0]"),
        ({**STATE, "a": [STATE["a"][0].double(), 0.1]}, "state.a[0]: (2,) torch.float32 and"),
        ({**STATE, "a": [STATE["a"][0], 0.1 + 2**-56]}, "state.a[1]"),
        ({**STATE, "b": {"c": None}}, "state.b.d exists in one of them only"),
        ({**STATE, "b": {"c": 0, "d": (1, "x")}}, "state.b.c: None and 0"),
        ({**STATE, "b": {"c": None, "d": (True, "x")}}, "state.b.d[0]: 1 and True"),
        ({**STATE, "a": [STATE["a"][0]]}, "state.a: 2 and 1 entries"),
    ],
)
def test_the_first_difference_is_named(found, where):
    assert (first_difference(STATE, found, "state") or "").startswith(where)


def test_zeros_of_another_sign_differ():
    assert first_difference(torch.tensor([0.0]), torch.tensor([-0.0]), "x") == "x"
