"""Whatever a reward gets wrong has one outcome, a counter, and a line in reward_errors.jsonl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from faulty_parts import COMMON, CountingSettings, OwnSettings, composite, faulty, played

from selfdistill_cli.core.errors import ConfigError, SandboxError
from selfdistill_cli.core.types import Stop
from selfdistill_cli.rewards import errors
from selfdistill_cli.rewards.errors import ErrorPolicy, Refused, RewardError, read_number
from selfdistill_cli.rewards.guarded import GuardedReward
from selfdistill_cli.rewards.settings import TestsComponent

KINDS = ("exception", "nan", "inf", "none", "wrong_length", "not_a_number")
TESTS = TestsComponent(**COMMON, mode="fraction")
HALF = {"passed": 1, "total": 2, "compiled": True}


def guarded(settings: Any, path: Path | None = None, **policy: Any) -> GuardedReward:
    chosen: dict[str, Any] = {"on_error": "mask", "retries": 2, "error_budget": 100, **policy}
    keys = {"key": "guards.on_reward_error", "budget_key": "guards.reward_error_budget"}
    return GuardedReward(settings.build(), ErrorPolicy(**chosen, **keys), path)


def scored(reward: GuardedReward, trajectories: Any, learning: bool = True, step: int = 3):
    return reward.score_many(trajectories, step=step, learning=learning)


@pytest.mark.parametrize("kind", KINDS)
def test_a_masked_component_contributes_nothing_and_is_counted(kind: str) -> None:
    reward = guarded(composite(tests=TESTS, odd=faulty(kind)))
    good, bad, last = scored(reward, played("good", "bad", "good", **HALF))
    assert (good.total, bad.total, last.total) == (1.0, 0.5, 1.0)
    assert bad.parts == {"tests": 0.5}
    assert bad.missing == ("odd",)
    assert good.missing == last.missing == ()
    found = reward.metrics()
    assert found[f"reward/errors/odd/{kind}"] == (2 if kind == "wrong_length" else 1)
    assert found["reward/errors"] == found[f"reward/errors/odd/{kind}"]
    assert reward.metrics() == {"reward/errors": 0.0}, "counted once"


@pytest.mark.parametrize("kind", KINDS)
def test_zero_is_a_value(kind: str) -> None:
    reward = guarded(composite(odd=faulty(kind, on_error="zero")))
    good, bad = scored(reward, played("good", "bad", **HALF))
    assert (good.total, bad.total) == (0.5, 0.0)
    assert bad.missing == ()
    assert reward.metrics()["reward/errors"] > 0


def test_without_any_value_the_trajectory_is_rejected() -> None:
    score = scored(guarded(composite(odd=faulty("nan"))), played("bad", **HALF))[0]
    assert score.total is None
    assert score.missing == ("odd",)


@pytest.mark.parametrize(("fails", "value"), [(1, 0.5), (3, 0.5), (4, None)])
def test_retry_asks_again_and_then_masks(fails: int, value: float | None) -> None:
    # In a batch of two a batch call, then one alone where it raised; nan is no exception.
    reward = guarded(composite(odd=faulty("nan", fails=fails, on_error="retry", retries=3)))
    _, bad = scored(reward, played("good", "bad", **HALF))
    assert bad.total == value
    assert reward.metrics()["reward/errors/odd/nan"] == 1, "rescued or not, it failed"


@pytest.mark.parametrize("kind", KINDS)
def test_abort_names_component_task_value_and_remedy(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "reward_errors.jsonl"
    reward = guarded(composite(tests=TESTS, odd=faulty(kind, on_error="abort")), path)
    with pytest.raises(RewardError) as caught:
        scored(reward, played("good", "bad", **HALF))
    said = str(caught.value)
    for word in ("odd failed at step 3", kind, "reward.components.odd.on_error=mask", str(path)):
        assert word in said
    assert ("task t1" in said) or kind == "wrong_length"


def test_the_budget_is_of_the_run_and_of_the_component() -> None:
    settings = composite(a=faulty("nan", error_budget=3), b=faulty("inf"), tests=TESTS)
    reward = guarded(settings)
    scored(reward, played("bad", "bad", "bad", **HALF))
    assert reward.state_dict()["errors"] == {"a": 3, "b": 3}
    again = guarded(settings)
    again.load_state_dict(reward.state_dict())
    with pytest.raises(RewardError, match=r"a failed.*failure 4.*error_budget endures 3"):
        scored(again, played("bad", **HALF))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "wrong_length"])
def test_a_whole_reward_of_a_user_is_guarded_too(kind: str) -> None:
    good, bad = scored(guarded(OwnSettings(fault=kind)), played("good", "bad", passed=2, total=2))
    assert good.total == 1.0
    expected = (None, 1.0, ("reward",))
    assert (bad.total, bad.success, bad.missing) == expected, "success is the environment's own"
    zero = guarded(OwnSettings(fault=kind), on_error="zero")
    assert scored(zero, played("bad", passed=1, total=2))[0].total == 0.0
    assert zero.metrics()[f"reward/errors/reward/{kind}"] == 1
    with pytest.raises(RewardError, match=r"reward failed.*guards\.on_reward_error=mask"):
        scored(guarded(OwnSettings(fault=kind), on_error="abort"), played("bad"))


def test_a_batch_that_fails_is_asked_one_by_one_with_its_memory_put_back() -> None:
    reward = guarded(CountingSettings())
    found = scored(reward, played("good", "bad", "good"))
    assert [score.total for score in found] == [1.0, None, 2.0], "what failed counts nowhere"
    assert reward.state_dict()["reward"] == {"count": 2}
    assert reward.metrics()["reward/errors/reward/exception"] == 1


def test_an_evaluation_leaves_no_memory_and_never_stops_a_run() -> None:
    reward = guarded(CountingSettings(), on_error="abort")
    scored(reward, played("good"))
    assert scored(reward, played("good", "bad"), learning=False)[1].total is None
    assert reward.state_dict()["reward"] == {"count": 1}
    with pytest.raises(RewardError, match="bad"):
        scored(reward, played("good"))


def test_the_sample_is_saved_within_bounds(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(errors, "MOST_LINES", 5)
    path = tmp_path / "run/reward_errors.jsonl"
    reward = guarded(composite(odd=faulty("exception")), path)
    for _ in range(3):
        scored(reward, played("bad", "bad", "good", **HALF))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == 5
    assert lines[1] == {
        "step": 3, "component": "odd", "kind": "exception", "error": "KeyError: 'no such thing'",
        "task": "t1", "sibling": 1, "text": "bad",
    }  # fmt: skip
    long = tmp_path / "long.jsonl"
    reward = guarded(OwnSettings(fault="exception"), long)
    surrogate = played("bad")[0]
    turn = surrogate.turns[0]
    parts = [turn, *(type(turn)(prompt_ids=[], generation=turn.generation, text="\ud800x" * 9999),)]
    scored(reward, [type(surrogate)(**{**vars(surrogate), "turns": tuple(parts)})])
    assert len(json.loads(long.read_text())["text"]) == errors.LONGEST_TEXT


def test_an_error_of_ours_goes_through() -> None:
    class Walled:
        def score(self, trajectory):
            raise SandboxError("isolation was lost")

    policy = ErrorPolicy(on_error="mask", retries=0, error_budget=9, key="k", budget_key="b")
    with pytest.raises(SandboxError):
        scored(GuardedReward(Walled(), policy), played("good"))


@pytest.mark.parametrize(
    ("value", "kind"),
    [(None, "none"), ("1", "not_a_number"), ([1], "not_a_number"), (1j, "not_a_number"),
     (float("nan"), "nan"), (float("inf"), "inf"), (10**400, "inf"), (1e300, "inf")],
)  # fmt: skip
def test_what_is_no_number(value: Any, kind: str) -> None:
    with pytest.raises(Refused) as caught:
        read_number(value)
    assert caught.value.kind == kind


def test_numbers_of_libraries_are_numbers() -> None:
    import numpy as np
    import torch

    found = [read_number(x) for x in (np.float32(0.5), np.int64(2), torch.tensor(0.25), True)]
    assert found == [0.5, 2.0, 0.25, 1.0]
    with pytest.raises(Refused):
        read_number(torch.zeros(2))


def test_a_component_without_values_is_refused_when_it_is_built() -> None:
    class NotAPart(type(faulty("nan"))):
        implementation = "builtins:object"

    with pytest.raises((ConfigError, TypeError)):
        composite(odd=NotAPart(**COMMON, fault="nan", good=0.5, fails=1)).build()


def test_a_failed_environment_is_not_the_rewards_fault() -> None:
    reward = guarded(composite(odd=faulty("exception"), tests=TESTS))
    score = scored(reward, played("bad", stop=Stop.ENV_ERROR, error="x"))[0]
    assert score.total is None
    assert reward.metrics() == {"reward/errors": 0.0}
