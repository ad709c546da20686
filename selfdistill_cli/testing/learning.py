"""Suites of what is minimised: terms and their coefficients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from selfdistill_cli.core.protocols import Coefficient, Term
from selfdistill_cli.core.types import Batch, Group, PolicyOutput, Sample
from selfdistill_cli.testing.batches import (
    CREDIT,
    leaves,
    make_batch,
    make_output,
    poisoned,
    rows_of,
    widened,
    widened_by,
    without_actions,
)
from selfdistill_cli.testing.companions import readings
from selfdistill_cli.testing.expecting import (
    expect,
    expect_members,
    expect_number,
    expect_repeats,
    expect_resumes,
    expect_row,
)
from selfdistill_cli.testing.material import cases, declared, judged, with_advantages

TOLERANCE = 1e-4


def check_coefficient(make: Callable[[], Coefficient], *, steps: int = 40) -> None:
    """Raise AssertionError unless `make()` returns a new coefficient that keeps its contract."""
    part = make()
    name = type(part).__name__
    expect(callable(part), f"{name} has no __call__(step)")
    expect_members(part, "observe", "state_dict", "load_state_dict")
    for step in (1, 2, 10, 1000):
        expect_number(f"{name}({step})", part(step))
        expect(part(step) == part(step), f"{name}({step}) gave two values in a row")
    for synced in (False, True):
        part.observe(None, replace(readings(1), reward=None, success=None), synced)
    expect_number(f"{name}(2) after a step without readings", part(2))

    def advance(moving: Any, step: int) -> list[float]:
        before = moving(step)
        expect_number(f"{name}({step})", before)
        measured = None if step % 11 == 0 else readings(step).losses["term"]
        moving.observe(measured, readings(step), step % 13 == 0)
        return [before, moving(step + 1), moving(step + 5)]

    expect_resumes(make, advance, (0, 1, steps // 3, steps // 2, steps - 2), steps)


def check_term(make: Callable[[], Term], *, name: str = "term") -> None:
    """Raise AssertionError unless `make()` returns a new term that keeps its contract.

    `name`: under which it was built. The term gets what its `needs`, `judge_needs` and `views`
    name, and nothing else.
    """
    term = make()
    expect_members(term, "needs", "coefficient", "weights", "count", "total")
    for case, groups in cases().items():
        _check_weights(make, groups, f"{type(term).__name__}.weights ({case})")
    for case, batch in _batches(term, name):
        output = make_output(batch, frozenset(term.needs))
        what = f"{type(term).__name__}.total ({case})"
        _check_total(make, output, batch, what)
        _check_nan(term, output, batch, what)
        _check_parts(term, output, batch, what)
        _check_padding(term, output, batch, what)
        empty = without_actions(batch)
        _check_empty(term, make_output(empty, frozenset(term.needs)), empty, what)
    check_coefficient(lambda: make().coefficient)


def _check_weights(make: Callable[[], Term], groups: Sequence[Group], what: str) -> None:
    given = with_advantages(judged(groups, *declared(make(), "judge_needs")))
    samples = [sample for group in given for sample in group.samples]
    found = expect_repeats(make, lambda term: term.weights(given), what, given)
    if found is None:
        return
    expect(isinstance(found, list), f"{what}: expected None or a list, got {type(found).__name__}")
    counts = f"expected one row for each of {len(samples)} samples, got {len(found)}"
    expect(len(found) == len(samples), f"{what}: {counts}")
    for sample, row in zip(samples, found, strict=True):
        expect_row(what, row, len(sample.token_ids))


def _batches(term: Any, name: str) -> Iterator[tuple[str, Batch]]:
    """An ordinary micro-batch with credit weights, one with two turns, one row alone."""
    for case in ("ordinary step", "two turns in a sample", "one sibling"):
        given = with_advantages(judged(cases()[case], *declared(term, "judge_needs")))
        samples: list[Sample] = [sample for group in given for sample in group.samples]
        rows = term.weights(given)
        weights = {} if rows is None else {name: rows}
        if case == "ordinary step":
            ramps = [np.linspace(0.5, 1.5, len(sample.token_ids)) for sample in samples]
            weights[CREDIT] = [r.astype(np.float32) for r in ramps]
        needs = frozenset(term.needs)
        yield case, make_batch(samples, views=declared(term)[1], needs=needs, weights=weights)


def _gradients(
    term: Any, output: PolicyOutput, batch: Batch, what: str
) -> tuple[float, dict[str, torch.Tensor]]:
    """The sum and its gradient for every tensor of the output, 0 where it does not depend on it."""
    total, sums = term.total(output, batch)
    scalar = isinstance(total, torch.Tensor) and total.ndim == 0
    expect(scalar, f"{what}: expected a tensor without dimensions, got {total!r}")
    expect_number(what, float(total.detach()))
    connected = "the sum is not connected to the graph; an empty one is 0 * the sum of logprobs"
    expect(total.requires_grad, f"{what}: {connected}")
    for key, pair in sums.items():
        is_pair = isinstance(pair, tuple) and len(pair) == 2
        expect(is_pair, f"{what}: the diagnostic {key} is {pair!r}; expected (sum, count)")
        for number in pair:
            expect_number(f"{what}: the diagnostic {key}", number)
        expect(pair[1] >= 0, f"{what}: the count of the diagnostic {key} is negative")
    found = leaves(output)
    gradients = torch.autograd.grad(total, list(found.values()), allow_unused=True)
    filled = [
        torch.zeros_like(leaf) if gradient is None else gradient
        for leaf, gradient in zip(found.values(), gradients, strict=True)
    ]
    return float(total.detach()), dict(zip(found, filled, strict=True))


def _check_total(make: Callable[[], Term], output: PolicyOutput, batch: Batch, what: str) -> None:
    def use(term: Any) -> list[Any]:
        return [term.count(batch), _gradients(term, output, batch, what)]

    count, (_, gradients) = expect_repeats(make, use, what, output, batch)
    expect_number(what.replace("total", "count"), count)
    expect(count >= 0, f"{what.replace('total', 'count')} is negative: {count}")
    for key, gradient in gradients.items():
        finite = bool(torch.isfinite(gradient).all())
        expect(finite, f"{what}: the gradient for {key} has nan or infinite entries")
        inactive = gradient[~widened(batch.action_mask, gradient).expand_as(gradient)]
        expect(bool((inactive == 0).all()), f"{what}: {key} has a gradient at inactive positions")


def _check_nan(term: Term, output: PolicyOutput, batch: Batch, what: str) -> None:
    """What stands at inactive positions, even nan, changes neither the sum nor its gradient."""
    clean, clean_gradients = _gradients(term, output, batch, what)
    mask = batch.action_mask
    what = f"{what}, nan at inactive positions"
    dirty_batch: Batch = poisoned(batch, mask)
    dirty, gradients = _gradients(term, poisoned(output, mask), dirty_batch, what)
    close(f"{what}: the sum", dirty, clean)
    close(f"{what}: the count", term.count(dirty_batch), term.count(batch))
    for key, gradient in gradients.items():
        equal = torch.allclose(gradient, clean_gradients[key], atol=TOLERANCE)
        remedy = "use torch.where(mask, values, 0) before any arithmetic: nan * 0 is nan"
        expect(equal, f"{what}: the gradient for {key} is another; {remedy}")


def _check_parts(term: Term, output: PolicyOutput, batch: Batch, what: str) -> None:
    """Sum and count of a micro-batch are those of its parts together; pairs are not divided."""
    alone = 1 + int(batch.pairs.max())
    units = [p if p >= 0 else alone + i for i, p in enumerate(batch.pairs.tolist())]
    total, count = 0.0, 0.0
    for unit in sorted(set(units)):
        rows = torch.tensor([i for i, u in enumerate(units) if u == unit])
        some: Batch = rows_of(batch, rows, batch.num_rows)
        total += _gradients(term, rows_of(output, rows, batch.num_rows), some, what)[0]
        count += term.count(some)
    hint = "return a sum and its count, never a mean"
    close(f"{what}: {hint}; the sum over its rows", total, _gradients(term, output, batch, what)[0])
    close(f"{what}: {hint}; the count over its rows", count, term.count(batch))


def _check_empty(term: Term, output: PolicyOutput, batch: Batch, what: str) -> None:
    """No active token: a zero that is connected to the graph, and gradients of 0."""
    what = f"{what}, empty micro-batch"
    total, gradients = _gradients(term, output, batch, what)
    expect(total == 0.0, f"{what} is {total}, expected 0")
    zero = all(bool((gradient == 0).all()) for gradient in gradients.values())
    expect(zero, f"{what}: a gradient is not 0")
    count = term.count(batch)
    expect_number(f"{what}: the count", count)
    expect(count >= 0, f"{what}: the count is negative")


def _check_padding(term: Term, output: PolicyOutput, batch: Batch, what: str) -> None:
    """Columns of padding change nothing."""
    shape = batch.action_mask.shape
    wide: Batch = widened_by(batch, 4, shape)
    total = _gradients(term, output, batch, what)[0]
    wider = _gradients(term, widened_by(output, 4, shape), wide, what)[0]
    close(f"{what}: with four columns of padding the sum", wider, total)
    close(f"{what}: with four columns of padding the count", term.count(wide), term.count(batch))


def close(what: str, found: float, expected: float) -> None:
    """Expect two numbers to agree up to rounding."""
    near = abs(found - expected) <= TOLERANCE * max(1.0, abs(expected))
    expect(near, f"{what} is {found:.6g}, expected {expected:.6g}")
