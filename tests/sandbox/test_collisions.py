"""Keys that a program chose so that a hash table of them is slow to build."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from attacking import run

from selfdistill_cli.sandbox.inside import wire
from selfdistill_cli.sandbox.jobs import CallJob
from selfdistill_cli.sandbox.sandbox import Sandbox

MODULUS = 2**61 - 1
"""Whole multiples of it have the hash 0."""
HOSTILE = f"""
from selfdistill_cli.sandbox.inside import wire
honest = wire.encode
def encode(value, depth=0):
    if value == 'boom':
        return ['set', [k * {MODULUS} for k in range(1, COUNT)]]
    return honest(value, depth)
wire.encode = encode
def f(x): return 'boom'
"""
# Floats collide far less; they are counted with the others.
KEYS: dict[str, Callable[[int], Any]] = {
    "whole numbers": lambda k: k * MODULUS,
    "floats": lambda k: float(k * MODULUS),
    "tuples": lambda k: ["tuple", [k * MODULUS]],
    "frozen sets": lambda k: ["frozenset", [k * MODULUS]],
}


def payload(kind: str, tag: str, size_bytes: int, count: int) -> list[Any]:
    """Return as many tables of `count` colliding keys as fit."""
    keys = [KEYS[kind](k) for k in range(1, count + 1)]
    content = keys if tag == "set" else [[key, 0] for key in keys]
    table = [tag, content]
    return ["list", [table] * (size_bytes // len(json.dumps(table, separators=(",", ":"))))]


def seconds(data: Any) -> float:
    """Return the processor time that it takes to decode it."""
    start = time.thread_time()
    wire.decode(data, distrusted=True)
    return time.thread_time() - start


@pytest.mark.parametrize("tag", ["set", "dict"])
@pytest.mark.parametrize("kind", KEYS)
def test_what_collides_costs_little(kind: str, tag: str) -> None:
    small = payload(kind, tag, 64 << 10, wire.MAX_KEYS)
    assert min(seconds(small) for _ in range(3)) < 0.05
    assert seconds(payload(kind, tag, 1 << 20, wire.MAX_KEYS)) < 1.0


@pytest.mark.parametrize("kind", KEYS)
def test_more_of_it_is_refused(kind: str) -> None:
    for tag in ("set", "dict"):
        data = payload(kind, tag, 1 << 20, wire.MAX_KEYS + 1)[1][0]
        with pytest.raises(wire.Costly, match="more than 1000 keys"):
            wire.decode(data, distrusted=True)
        with pytest.raises(wire.Costly):  # deeper down as well
            wire.decode(["tuple", [["list", [data]]]], distrusted=True)
    with pytest.raises(wire.Costly):
        wire.decode(["set", list(range(wire.MAX_NUMBERS + 1))], distrusted=True)


def test_ordinary_tables_are_not_refused() -> None:
    for value in (
        set(range(-5000, 5000)),
        {str(i): i for i in range(20_000)},
        {(i, i) for i in range(1000)},
        [(i, 1.5 * i) for i in range(20_000)],
    ):
        assert wire.decode(wire.encode(value), distrusted=True) == value
    large = {(i, i) for i in range(3000)}  # as an argument, from whom the sandbox trusts
    assert wire.decode(wire.encode(large)) == large


def test_a_program_that_sends_it_delays_nobody(make_sandbox: Callable[..., Sandbox]) -> None:
    box = make_sandbox(max_output_kb=1024, workers=2)
    box.start()
    good = CallJob(
        program="import time\ndef f(x):\n    time.sleep(0.02)\n    return x + 1",
        entry_point="f",
        calls=tuple((i,) for i in range(10)),
    )
    bad = CallJob(program=HOSTILE.replace("COUNT", "38000"), entry_point="f", calls=((1,),))
    start = time.thread_time()
    one, other, two = box.run_calls([good, bad, good])
    assert time.thread_time() - start < 1.0
    assert [[r.value for r in report.results] for report in (one, two)] == [list(range(1, 11))] * 2
    assert other.results[0].status == "bad_value"
    assert "more than 1000 keys" in other.results[0].message


def test_a_result_with_many_pairs_says_why_it_is_none(sandbox: Sandbox) -> None:
    report = run(sandbox, "def f(x): return {(i, i) for i in range(x)}", 900, 1500)
    assert len(report.results[0].value) == 900
    assert report.results[1].status == "bad_value"
    assert "more than 1000 keys" in report.results[1].message
