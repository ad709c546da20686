"""Names of cells: readable, safe as folders, never shared."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from selfdistill_cli.sweeping.naming import LONGEST, cell_name, short_keys, sweep_name


def test_names_say_what_is_swept() -> None:
    values = {"method": "gear", "optim.lr": "1e-05", "seed": "-1"}
    assert cell_name(values) == "gear-lr_1e-05-seed_-1"
    assert cell_name({"method/credit": "uniform"}) == "credit_uniform"
    assert short_keys(["a.x.lr", "b.x.lr", "seed"]) == {
        "a.x.lr": "a.x.lr", "b.x.lr": "b.x.lr", "seed": "seed",
    }  # fmt: skip
    assert short_keys(["optim.lr", "policy.lr"])["optim.lr"] == "optim.lr"


def test_odd_values_have_safe_names_of_their_own() -> None:
    odd = ["'a,b'", '"a b"', "a/b", "../x", "[1,2]", "{a: 1}", "ключ", "δ", "x" * 300, "'", "", "."]
    names = [cell_name({"env.data": value}) for value in odd]
    assert len(set(names)) == len(odd)
    assert all(re.fullmatch(r"[A-Za-z0-9_.+-]+", name) for name in names)
    assert all(len(name) <= LONGEST and not name.startswith(".") for name in names)
    assert cell_name({"experiment": "logs"}) != "logs"


TEXT = st.text(st.sampled_from("ab1-_.,e '\"[]é"), max_size=12)


@given(st.lists(st.tuples(TEXT, TEXT), min_size=2, max_size=6, unique=True))
def test_no_two_cells_share_a_name(pairs: list[tuple[str, str]]) -> None:
    names = {cell_name({"env.data": a, "optim.lr": b}) for a, b in pairs}
    assert len(names) == len(pairs)


def test_a_sweep_is_named_by_its_keys_and_a_hash_of_the_rest() -> None:
    name = sweep_name(["method", "optim.lr"], {"fixed": {}})
    assert re.fullmatch(r"method-lr-[0-9a-f]{6}", name)
    assert name != sweep_name(["method", "optim.lr"], {"fixed": {"seed": "1"}})
