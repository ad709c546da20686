"""Suites of the parts that judge: advantage and credit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from selfdistill_cli.core.protocols import Advantage, Credit
from selfdistill_cli.core.types import Group
from selfdistill_cli.testing.expecting import (
    expect,
    expect_members,
    expect_metrics,
    expect_repeats,
    expect_resumes,
    expect_row,
    same,
    untouched,
)
from selfdistill_cli.testing.material import (
    cases,
    declared,
    judged,
    make_group,
    step_groups,
    with_advantages,
)

STEPS = 5


def check_advantage(make: Callable[[], Advantage], *, compares_siblings: bool = False) -> None:
    """Raise AssertionError unless `make()` returns a new advantage that keeps its contract.

    `compares_siblings`: siblings with equal rewards have advantage 0. The part gets what its
    `needs` name and nothing else.
    """
    part = make()
    expect_members(part, "needs", "assign", "after_credit", "state_dict", "load_state_dict")
    for case, groups in cases().items():
        what = f"{type(part).__name__}.assign ({case})"
        given = judged(groups, *declared(part))
        assigned = expect_repeats(make, lambda p, given=given: p.assign(given), what, given)
        _expect_groups(what, given, assigned, may_drop=True)
        _check_after_credit(make, assigned, case)
    _check_rejected(make)
    if compares_siblings:
        flat = make().assign(judged(cases()["flat group"], *declared(part)))
        zero = all(bool((_advantages(s) == 0).all()) for g in flat for s in g.samples)
        expect(zero, f"{type(part).__name__}.assign: a flat group has an advantage other than 0")
    expect_resumes(make, _assign_step, (0, 2), STEPS)


def _check_after_credit(
    make: Callable[[], Advantage], assigned: Sequence[Group], case: str
) -> None:
    """Once more after the credit, whose weights lie in `Sample.weights`."""
    weighted = [
        replace(g, samples=tuple(_with_credit(s, i) for i, s in enumerate(g.samples)))
        for g in assigned
    ]
    for given in (list(assigned), weighted):
        part = make()
        what = f"{type(part).__name__}.after_credit ({case})"
        with untouched(what, given):
            found = part.after_credit(given)
        _expect_groups(what, given, found, may_drop=True)


def _with_credit(sample: Any, row: int) -> Any:
    ramp = np.linspace(0.5, 1.5, len(sample.token_ids)).astype(np.float32)
    weights = np.where(sample.action_mask, ramp + 0.1 * row, 0.0).astype(np.float32)
    changed = _advantages(sample) * weights
    return replace(sample, advantages=changed, weights={**sample.weights, "credit": weights})


def _check_rejected(make: Callable[[], Advantage]) -> None:
    """A rejected trajectory counts in no baseline: without it all others stay as they are."""
    part = make()
    group = judged([make_group("bb", [0.0, None, 1.0, 1.0])], *declared(part))[0]
    kept = [i for i, score in enumerate(group.scores) if score.total is not None]
    without = replace(
        group,
        trajectories=tuple(group.trajectories[i] for i in kept),
        scores=tuple(group.scores[i] for i in kept),
    )
    both = [make().assign([g])[0].samples for g in (group, without)]
    expect(
        same(*both),
        f"{type(part).__name__}.assign: a rejected trajectory (score.total is None) changed the "
        "advantages of its siblings; leave it out of every mean, deviation and rank",
    )


def _assign_step(part: Any, step: int) -> Any:
    assigned = part.assign(judged(step_groups(step), *declared(part), seed=step))
    return [assigned, part.after_credit(assigned)]


def check_credit(make: Callable[[], Credit]) -> None:
    """Raise AssertionError unless `make()` returns a new credit that keeps its contract.

    The part gets advantages and what its `needs` and `views` name, and nothing else.
    """
    part = make()
    expect_members(part, "needs", "reweight", "after_step", "state_dict", "load_state_dict")
    for case, groups in cases().items():
        given = with_advantages(judged(groups, *declared(part)))
        _check_reweight(make, given, case)

        # Once more with what a few steps taught it.
        def experienced() -> Credit:
            taught = make()
            for step in (1, 2):
                _credit_step(taught, step)
            return taught

        _check_reweight(experienced, given, f"{case}, after two steps")
    expect_resumes(make, _credit_step, (0, 1, 3), STEPS)


def _check_reweight(make: Callable[[], Credit], given: Sequence[Group], case: str) -> None:
    name = type(make()).__name__
    for step in (1, 7):
        what = f"{name}.reweight ({case}, step {step})"
        found = expect_repeats(make, lambda p, step=step: p.reweight(given, step), what, given)
        pair = isinstance(found, tuple) and len(found) == 2
        expect(pair, f"{what}: expected (groups, metrics), got {type(found).__name__}")
        _expect_groups(what, given, found[0], may_drop=False)
        expect_metrics(what, found[1])
    what = f"{name}.after_step ({case})"
    part = make()
    changed, _ = part.reweight(given, 1)
    with untouched(what, changed):
        expect_metrics(what, part.after_step(changed, 1))


def _credit_step(part: Any, step: int) -> Any:
    given = with_advantages(judged(step_groups(step), *declared(part), seed=step), step)
    changed, metrics = part.reweight(given, step)
    return [changed, dict(metrics), dict(part.after_step(changed, step))]


def _expect_groups(
    what: str, given: Sequence[Group], found: Sequence[Group], *, may_drop: bool
) -> None:
    """The same groups in the same order; each sample only has other advantages and weights."""
    expect(isinstance(found, list), f"{what}: expected a list of groups, got {type(found)}")
    counts = f"expected {len(given)} groups, got {len(found)}"
    expect(len(found) == len(given), f"{what}: {counts}; a group without samples stays in the list")
    for before, after in zip(given, found, strict=True):
        kept = replace(after, samples=before.samples)
        expect(same(kept, before), f"{what}: task, trajectories or scores of a group changed")
        if not may_drop:
            equal = len(after.samples) == len(before.samples)
            expect(equal, f"{what}: a group has other samples than before")
        rest = list(before.samples)
        for sample in after.samples:
            _expect_sample(what, rest, sample)


def _expect_sample(what: str, rest: list[Any], sample: Any) -> None:
    """The sample is one of the rest, in order, and its arrays are well-formed."""
    while rest and not same(rest[0].token_ids, sample.token_ids):
        rest.pop(0)
    expect(bool(rest), f"{what}: a sample has other tokens, or samples changed their order")
    before = rest.pop(0)
    mask, length = before.action_mask, len(before.token_ids)
    expect(sample.advantages is not None, f"{what}: a sample has no advantages")
    expect_row(f"{what}: advantages", sample.advantages, length, mask)
    for name in ("rewards", "returns"):
        if getattr(sample, name) is not None:
            expect_row(f"{what}: {name}", getattr(sample, name), length, mask)
    for name, row in sample.weights.items():
        expect_row(f"{what}: weights[{name!r}]", row, length)
    own = {
        name: getattr(before, name)
        for name in ("advantages", "rewards", "returns", "weights", "truncated", "bootstrap_value")
    }
    rest_of_it = same(replace(sample, **own), before)
    expect(rest_of_it, f"{what}: a sample's tokens, masks, log-probabilities or views changed")


def _advantages(sample: Any) -> np.ndarray:
    assert sample.advantages is not None, "checked before"
    return sample.advantages
