"""Sums of components: values, success, rejection, and the normaliser's memory."""

from __future__ import annotations

import pytest
from faulty_parts import COMMON, composite, faulty, played

from selfdistill_cli.config.compose import compose
from selfdistill_cli.core.errors import ConfigError, FieldError
from selfdistill_cli.core.types import Stop
from selfdistill_cli.rewards.components import Component, RunningMoments, composite_batch
from selfdistill_cli.rewards.components import composite as arithmetic
from selfdistill_cli.rewards.settings import CompositeSettings, OverlongComponent, TestsComponent

TESTS = TestsComponent(**COMMON, mode="fraction")
CUT = OverlongComponent(**{**COMMON, "weight": 0.5}, max_tokens=10, cache_fraction=0.4)


def outcomes(*passed: int):
    """One sibling per number of passed tests of four."""
    return [t for n in passed for t in played("x", passed=n, total=4, compiled=True)]


def test_success_is_the_environments_whatever_the_total_is() -> None:
    settings = composite(tests=TESTS, more=faulty("nan", weight=9.0))
    low, high = settings.build().score_many(outcomes(1, 4))
    assert (low.success, high.success) == (0.0, 1.0)
    assert (low.total, high.total) == (0.25 + 4.5, 1.0 + 4.5)
    assert high.parts == {"tests": 1.0, "more": 0.5}, "parts are unweighted"


def test_what_has_no_value_is_missing_and_the_rest_counts() -> None:
    reward = composite(tests=TESTS, overlong=CUT).build()
    score = reward.score(played("x", stop=Stop.MAX_TOKENS, tokens=8)[0])
    assert score.total == 0.5 * -0.5
    assert score.missing == ("tests",)
    assert composite(tests=TESTS).build().score(played("x", stop=Stop.MAX_TURNS)[0]).total is None


def test_several_turns_are_as_long_as_all_their_tokens() -> None:
    one = played("x", tokens=4)[0]
    two = type(one)(**{**vars(one), "turns": one.turns * 2})
    scores = composite(overlong=CUT).build().score_many([one, two])
    assert [score.total for score in scores] == [0.0, -0.25]


NORMALIZED = TestsComponent(**{**COMMON, "normalize": True}, mode="fraction")


def test_a_normaliser_sees_a_batch_in_order_and_remembers() -> None:
    settings = composite(tests=NORMALIZED)
    reward = settings.build()
    totals = [score.total for score in reward.score_many(outcomes(4, 0, 2))]
    moments = RunningMoments()
    for value in (1.0, 0.0, 0.5):
        moments = moments.updated(value)
    assert totals == [moments.normalized(value) for value in (1.0, 0.0, 0.5)]
    saved = reward.state_dict()
    assert saved == {"tests": {"count": 3, "mean": moments.mean, "m2": moments.m2}}
    resumed = settings.build()
    resumed.load_state_dict(saved)
    assert resumed.score_many(outcomes(1, 3)) == reward.score_many(outcomes(1, 3))


def test_an_evaluation_reads_the_memory_and_adds_nothing() -> None:
    settings = composite(tests=NORMALIZED)
    reward = settings.build()
    reward.score_many(outcomes(4, 0, 2))
    before = reward.state_dict()
    reward.learning = False
    first, second = (reward.score_many(outcomes(1, 1, 4)) for _ in range(2))
    assert first == second
    assert first[0] == first[1], "the order within an evaluation does not matter"
    assert reward.state_dict() == before


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_equal_siblings_stay_equal(steps: int) -> None:
    reward = composite(tests=NORMALIZED, overlong=CUT).build()
    for _ in range(steps):
        reward.score_many(outcomes(0, 4, 1))
    scores = reward.score_many(outcomes(4, 4, 0, 4, 2, 2, 4, 4))
    totals = {n: {s.total for s in scores if s.parts["tests"] == n / 4} for n in (0, 2, 4)}
    assert [len(found) for found in totals.values()] == [1, 1, 1]
    assert max(totals[0]) < max(totals[2]) < max(totals[4])
    flat = composite(tests=NORMALIZED).build()
    for _ in range(steps):
        flat.score_many(outcomes(0, 4, 1))
    assert len({score.total for score in flat.score_many(outcomes(*[4] * 8))}) == 1


def test_a_batch_of_one_is_what_the_arithmetic_of_one_sample_says() -> None:
    parts = [
        Component(name="a", weight=2.0, scale=0.5, clip=(-0.4, 0.4), normalize=True),
        Component(name="b", weight=-1.0, scale=1.0, clip=None, normalize=False),
    ]
    one, many = {}, {}
    for values in ({"a": 1.0, "b": 2.0}, {"b": 1.0}, {"a": 3.0, "b": None}, {"a": -1.0}):
        total, _, one = arithmetic(values, parts, one)
        (found,), many = composite_batch([values], parts, many)
        assert (found, many) == (total, one)


@pytest.mark.parametrize("name", ["mean", "errors", "a/b", "", "x_std", "reward", "1st"])
def test_a_name_that_would_hide_a_metric_is_refused(name: str) -> None:
    with pytest.raises(FieldError, match="expected letters"):
        CompositeSettings(components={name: TESTS})


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("reward.components={lnt: {weight: 1}}", "'lnt'; did you mean 'lint'.*new name.*[+]reward"),
        ("reward.components={lint: {wieght: 1}}", r"lint has no setting 'wieght'; did you mean"),
        ("reward.components.lnt.weight=1", "no setting 'lnt'; did you mean 'lint'?"),
        ("reward.components.lint.wieght=1", "no setting 'wieght'; did you mean 'weight'?"),
        ("reward.components.lint.clip=[1,0]", r"lint\.clip: got .*expected \[lowest, highest\]"),
        ("reward.components.lint.on_error=skip", "lint.on_error: got 'skip'.*'mask'"),
        ("+reward/component@reward.components.x=lnt", "no option 'lnt'; did you mean 'lint'?"),
        ("+reward.components.mean.weight=1", "reward.components"),
    ],
)
def test_a_typo_is_named(word: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        compose(["reward=composite", word])
