"""A warm sandbox adds a few milliseconds to a program's own time."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import pytest

from selfdistill_cli.sandbox.measure import KINDS, batch_ms, cold_ms, warm_ms
from selfdistill_cli.sandbox.sandbox import Sandbox

Make = Callable[..., Sandbox]


@pytest.mark.parametrize("kind", KINDS)
def test_the_measured_jobs_are_answered(sandbox: Sandbox, kind: str) -> None:
    reports = KINDS[kind](sandbox, 2)
    good = ("returned", "passed", "finished")
    assert all(r.status in good for report in reports for r in report.results)  # type: ignore
    assert [time > 0 for time in warm_ms(sandbox, kind, 3)] == [True] * 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_warm_program_costs_little(sandbox: Sandbox, kind: str) -> None:
    """Below 10 ms on two idle cores; the bound leaves room for a busy machine: best of three."""
    bound = 20.0 if kind != "program" else 40.0  # two processes
    medians = [median(warm_ms(sandbox, kind, 100)) for _ in range(3)]
    assert min(medians) < bound, medians


@pytest.mark.slow
def test_starting_and_batches_cost_little(sandbox: Sandbox) -> None:
    settings = sandbox._settings
    assert cold_ms(settings) < 2000
    assert min(batch_ms(settings, "call", 100, 2) for _ in range(3)) < 20
