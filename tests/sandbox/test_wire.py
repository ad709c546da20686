"""Values on the wire: exact builtin types survive, everything else is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfdistill_cli.sandbox.inside import wire

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
hashable = st.recursive(scalars, lambda s: st.tuples(s, s) | st.frozensets(s), max_leaves=5)
values = st.recursive(
    scalars,
    lambda s: (
        st.lists(s)
        | st.tuples(s, s)
        | st.dictionaries(hashable, s)
        | st.sets(hashable)
        | st.frozensets(hashable)
    ),
    max_leaves=20,
)


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other


@settings(max_examples=60, deadline=None)
@given(values)
def test_round_trip(value: Any) -> None:
    again = wire.decode(json.loads(json.dumps(wire.encode(value))))
    assert same(again, value)


def test_round_trip_of_special_numbers() -> None:
    for value in (math.inf, -math.inf, 10**4000, -(2**63), -0.0):
        again = wire.decode(json.loads(json.dumps(wire.encode(value))))
        assert same(again, value)
        assert str(again)[:1] == str(value)[:1]
    assert math.isnan(wire.decode(wire.encode(math.nan)))


class Whole(int):
    """Looks like an int."""


def deep(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("value", [Whole(3), object(), [Whole(3)], {1: object()}, len, deep(100)])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(wire.Unsendable):
        wire.encode(value)


@pytest.mark.parametrize(
    "data",
    [{}, [], ["list"], ["list", 3], ["pickle", "x"], ["set", [["list", []]]], ["int", 3],
     ["bytes", "zz"], ["dict", [[1]]], ["float", "one"], [["list"], []], ["complex", "1"],
     ["complex", [1], [2]], ["list", [], []], ["float", "1", 2], ["dict", [[["list", []], 1]]]],
)  # fmt: skip
def test_malformed_data_is_a_value_error(data: Any) -> None:
    with pytest.raises(ValueError, match="malformed value"):
        wire.decode(data)


def test_what_could_not_be_sent_back_is_refused() -> None:
    data: Any = 1
    for _ in range(wire.MAX_DEPTH):
        data = ["list", [data]]
    assert wire.encode(wire.decode(data)) == data
    with pytest.raises(ValueError, match="malformed value"):
        wire.decode(["list", [data]])
