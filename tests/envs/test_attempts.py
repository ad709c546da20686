"""Several attempts in one episode: what is shown between them, and how the episode ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from code_envs import FIXTURE, make_env, task_of

from selfdistill_cli.core.errors import FieldError
from selfdistill_cli.core.protocols import StepResult
from selfdistill_cli.core.types import Stop, Trajectory
from selfdistill_cli.envs.code.attempts import MAX_LINE, feedback
from selfdistill_cli.envs.code.env import CodeEnv
from selfdistill_cli.rewards.settings import UnitTestsSettings

RIGHT, NEAR = "def double(x):\n    return x * 2", "def double(x):\n    return x + 2"
BAD, BROKEN = "def double(x):\n    return None", "def double(x) return"


@pytest.fixture(scope="module")
def env() -> Iterator[CodeEnv]:
    env = make_env(data=FIXTURE, attempts=3)
    yield env
    env.close()


def steps(env: CodeEnv, *actions: str) -> list[StepResult]:
    episode = env.episode(task_of(env, "own/4"), 0)
    return [episode.step(action) for action in actions]


def told(result: StepResult) -> list[str]:
    return [line for message in result.observation for line in message["content"].splitlines()]


def test_the_agent_sees_what_failed_and_may_try_again(env: CodeEnv) -> None:
    first, second, third = steps(env, BAD, NEAR, RIGHT)
    assert [first.done, second.done, third.done] == [False, False, True]
    assert [message["role"] for message in first.observation] == ["user"]
    assert told(first) == [
        "Tests passed: 0 of 3.",
        "double(2) returned None, expected 4",
        "double([1]) returned None, expected [1, 1]",
        "Try again.",
    ]
    assert told(second)[:2] == [
        "Tests passed: 1 of 3.",
        'double([1]) raised TypeError: can only concatenate list (not "int") to list',
    ]
    assert third.observation == ()
    assert third.outcome is not None
    assert third.outcome["passed_by_attempt"] == [0, 1, 3]
    assert (third.outcome["attempts"], third.outcome["attempts_allowed"]) == (3, 3)
    assert third.outcome["program"] == RIGHT


def test_success_ends_the_episode_and_so_does_the_last_attempt(env: CodeEnv) -> None:
    (only,) = steps(env, RIGHT)
    assert only.done
    assert only.outcome is not None
    assert only.outcome["passed_by_attempt"] == [3]
    *_, last = steps(env, NEAR, BAD, NEAR)
    assert last.done
    assert last.observation == ()
    assert last.outcome is not None
    assert last.outcome["passed_by_attempt"] == [1, 0, 1]


def test_one_attempt_is_what_it_was() -> None:
    env = make_env(data=FIXTURE)
    (result,) = steps(env, BAD)
    env.close()
    assert result.done
    assert result.observation == ()


def test_a_program_that_does_not_compile_is_told_once(env: CodeEnv) -> None:
    (result,) = steps(env, BROKEN)
    lines = told(result)
    assert len(lines) == 3
    assert lines[1].startswith("SyntaxError")


@pytest.mark.parametrize(("shown", "lines"), [(0, 0), (1, 1), (2, 2), (9, 3)])
def test_as_many_messages_as_asked_for(shown: int, lines: int) -> None:
    env = make_env(data=FIXTURE, attempts=2, shown_failures=shown)
    (result,) = steps(env, BAD)
    env.close()
    assert len(told(result)) == 2 + lines
    if not shown:
        assert told(result) == ["Tests passed: 0 of 3.", "Try again."]


def test_messages_are_bounded() -> None:
    tests = [{"status": "failed", "message": f"{i}\n" + "x" * 5000} for i in range(50)]
    graded: dict[str, Any] = {"status": "ok", "passed": 0, "total": 50, "tests": tests}
    lines = feedback(graded, 4).splitlines()
    assert len(lines) == 6
    assert max(map(len, lines)) <= MAX_LINE


def test_episodes_side_by_side_keep_their_own_count(env: CodeEnv) -> None:
    task = task_of(env, "own/4")
    episodes = [env.episode(task, 0) for _ in range(2)]
    env.step_many(episodes[:1], [BAD])
    results = env.step_many(episodes, [RIGHT, BAD])
    found = [result.outcome["passed_by_attempt"] for result in results if result.outcome]
    assert found == [[0, 3], [0]]


def test_the_last_attempt_counts_for_reward_and_hints(env: CodeEnv) -> None:
    task = task_of(env, "own/4")
    outcomes = [steps(env, *actions)[-1].outcome for actions in ([BAD, RIGHT], [BAD, NEAR])]
    cut = [
        Trajectory(task=task, sibling=i, turns=(), stop=stop, outcome=outcome or {},
                   policy_version=0)
        for i, (stop, outcome) in enumerate(zip([Stop.DONE, Stop.MAX_TOKENS], outcomes,
                                                strict=True))
    ]  # fmt: skip
    reward = UnitTestsSettings(mode="fraction").build()
    scores = [reward.score(trajectory) for trajectory in cut]
    assert [(score.total, score.success) for score in scores] == [(1.0, 1.0), (1 / 3, 0.0)]
    assert [score.parts["first_attempt"] for score in scores] == [0.0, 0.0]
    assert [score.parts["attempts"] for score in scores] == [2.0, 2.0]
    texts = {
        kind: [env.hint(kind, task, cut, scores, i, 0) for i in range(2)]
        for kind in ("own_wrong_answer", "feedback", "sibling", "meta_skill")
    }
    assert texts["own_wrong_answer"][0] is texts["feedback"][0] is None
    wrong, shown = texts["own_wrong_answer"][1], texts["feedback"][1]
    assert wrong is not None
    assert wrong.text == NEAR
    assert shown is not None
    assert shown.text.startswith(NEAR + "\ndouble([1]) raised TypeError")
    sibling = texts["sibling"][1]
    assert sibling is not None
    assert sibling.text == RIGHT
    contrast = texts["meta_skill"][1]
    assert contrast is not None
    assert contrast.text.startswith("Do: ")
    assert "x * 2" in contrast.text


def test_one_attempt_has_no_parts_about_attempts(env: CodeEnv) -> None:
    task = task_of(env, "own/4")
    reward = UnitTestsSettings(mode="fraction").build()
    outcome = steps(env, RIGHT)[-1].outcome or {}
    trajectory = Trajectory(
        task=task, sibling=0, turns=(), stop=Stop.DONE, outcome=outcome, policy_version=0
    )
    single = replace(trajectory, outcome={**outcome, "attempts_allowed": 1})
    assert set(reward.score(single).parts) == {"tests", "compiled"}
    assert set(reward.score(trajectory).parts) == {
        "tests", "compiled", "first_attempt", "attempts"}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"attempts": 0}, "from 1 to"), ({"shown_failures": -1}, "from 0 to")],
)
def test_settings_are_checked(changes: dict[str, int], message: str) -> None:
    with pytest.raises(FieldError, match=message):
        make_env(**changes)
