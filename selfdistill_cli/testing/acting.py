"""Suites of what the agent acts in: environment and reward."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from selfdistill_cli.core.hints import HINT_KINDS, Hint
from selfdistill_cli.core.protocols import Env, Reward, StepResult
from selfdistill_cli.core.types import Finish, Generation, Score, Stop, Task, Trajectory, Turn
from selfdistill_cli.testing.expecting import (
    expect,
    expect_members,
    expect_number,
    expect_repeats,
    expect_resumes,
    same,
    untouched,
)

ACTIONS = ("", "x", "print(1)", "```python\ndef f():\n    return 1\n```", "\x00 é 日本 \u2028" * 20)
"""Answers that an untrained policy may give."""
LONGEST = 200


def check_env(
    make: Callable[[], Env],
    *,
    split: str = "train",
    actions: Sequence[str] = ACTIONS,
    num_tasks: int = 3,
) -> None:
    """Raise AssertionError unless `make()` returns a new environment that keeps its contract.

    Episodes of the first `num_tasks` tasks are played with each of the actions, and with the
    task's reference answer if it is a text. Everything is closed at the end.
    """
    env, twin = make(), make()
    expect_members(env, "name", "hints", "tasks", "episode", "hint", "close")
    try:
        unknown = set(env.hints) - set(HINT_KINDS)
        expect(not unknown, f"hints: {unknown} are no kinds of hint; known: {HINT_KINDS}")
        tasks = env.tasks(split)
        _check_tasks(tasks)
        expect(same(list(env.tasks(split)), list(tasks)), "tasks: a second call gave others")
        expect(same(list(twin.tasks(split)), list(tasks)), "tasks: a second object gave others")
        for task in tasks[:num_tasks]:
            known = [task.answer] if isinstance(task.answer, str) else []
            played = [_check_episode(env, twin, task, action) for action in (*actions, *known)]
            _check_hints(env, task, played)
    finally:
        for opened in (env, twin):
            for _ in range(2):
                opened.close()


def _check_tasks(tasks: Sequence[Any]) -> None:
    expect(len(tasks) > 0, "tasks: there are none")
    ids = [task.id for task in tasks]
    expect(len(set(ids)) == len(ids), "tasks: two tasks have the same id; streams are keyed by it")
    for task in tasks:
        expect(isinstance(task, Task), f"tasks: expected core.types.Task, got {task!r}")
        _expect_messages(f"task {task.id}", task.messages)
        asks = any(message["role"] == "user" for message in task.messages)
        expect(asks, f"task {task.id}: no message is from the user")
        _expect_plain(f"task {task.id}: answer and meta", [task.answer, dict(task.meta)])


def _check_episode(env: Env, twin: Env, task: Task, action: str) -> Trajectory:
    """Play one episode on each object; both say the same. Return what came of it."""
    with untouched("an episode", task):
        results = [_play(each, task, action) for each in (env, twin)]
    expect(
        same(*results),
        f"task {task.id}: two episodes with equal seed and actions went differently; draw from "
        "core.seeds.stream(seed, ...)",
    )
    last = results[0][-1]
    stop = Stop.DONE if last.done else Stop.MAX_TURNS
    return Trajectory(
        task=task, sibling=0, turns=(), stop=stop, outcome=last.outcome or {}, policy_version=0
    )


def _play(env: Env, task: Task, action: str) -> list[StepResult]:
    episode = env.episode(task, 17)
    many = getattr(env, "step_many", None)
    results: list[StepResult] = []
    while len(results) < LONGEST and not (results and results[-1].done):
        found = episode.step(action)
        expect(isinstance(found, StepResult), f"step: expected StepResult, got {found!r}")
        results.append(found)
        _expect_messages(f"task {task.id}: observation", found.observation)
        if found.done:
            expect(found.outcome is not None, f"task {task.id}: done without an outcome")
            _expect_plain(f"task {task.id}: outcome", found.outcome)
        else:
            expect(bool(found.observation), f"task {task.id}: not done and no observation")
    if many is not None:
        together = many([env.episode(task, 17), env.episode(task, 17)], [action, action])
        equal = len(together) == 2 and all(same(found, results[0]) for found in together)
        expect(equal, f"task {task.id}: step_many says something else than step")
    return results


def _check_hints(env: Env, task: Task, played: Sequence[Trajectory]) -> None:
    """Before and after attempts, for each kind that the environment declares."""
    last = len(played) - 1
    scores = [Score(total=0.0, success=float(i == last), parts={}) for i in range(len(played))]
    siblings = [
        Trajectory(task=task, sibling=i, turns=(), stop=t.stop, outcome=t.outcome, policy_version=0)
        for i, t in enumerate(played)
    ]
    for kind in sorted(env.hints):
        for situation in (((), (), None), (siblings, scores, 0), (siblings, scores, last)):
            what = f"hint({kind!r}) for task {task.id}"
            with untouched(what, situation):
                found = [env.hint(kind, task, *situation, seed=5) for _ in range(2)]
            expect(same(*found), f"{what}: two calls gave two hints")
            if found[0] is not None:
                expect(isinstance(found[0], Hint), f"{what}: expected Hint, got {found[0]!r}")
                expect(found[0].kind == kind, f"{what}: the hint is of kind {found[0].kind!r}")


def check_reward(
    make: Callable[[], Reward],
    *,
    outcomes: Sequence[Mapping[str, Any]] = ({"success": 1.0}, {"success": 0.0}),
) -> None:
    """Raise AssertionError unless `make()` returns a new reward that keeps its contract.

    `outcomes`: what the environment says at the end of episodes. An episode that a limit cut may
    have an empty outcome; one whose environment failed must be rejected. `score_many` says what
    `score` says, up to rounding; a reward with memory goes on exactly after a resume. One that
    learns from what it scores may learn from a whole batch at once: for it the two are compared
    while `learning` is False.
    """
    name = type(make()).__name__
    expect_members(make(), "score")
    for outcome in outcomes:
        _check_score(make, _episode(outcome, Stop.DONE), f"{name}.score ({outcome})")
    for stop in (Stop.MAX_TURNS, Stop.MAX_TOKENS):
        _check_score(make, _episode({}, stop), f"{name}.score (cut by a limit, empty outcome)")
    failed = _episode({"error": "ValueError: x"}, Stop.ENV_ERROR)
    score = _check_score(make, failed, f"{name}.score (the environment failed)")
    expect(
        score.total is None,
        f"{name}.score: the environment failed (stop is env_error) and the total is "
        f"{score.total}; expected None, because it is not the agent's fault",
    )
    played = [_episode(outcome, Stop.DONE) for outcome in outcomes]
    played += [_episode({}, Stop.MAX_TURNS), failed, *played]
    _check_score_many(make, played)
    _check_memory(make, played)


def _check_score_many(make: Callable[[], Reward], played: Sequence[Trajectory]) -> None:
    reward: Any = make()
    if not hasattr(reward, "score_many"):
        return
    what = f"{type(reward).__name__}.score_many"
    found = expect_repeats(make, lambda part: list(part.score_many(played)), what, list(played))
    expect(len(found) == len(played), f"{what}: {len(found)} scores for {len(played)} trajectories")
    expect(list(reward.score_many([])) == [], f"{what}: no trajectories, and still scores")
    if _learns(make, played):
        reward.score_many(played)
        reward.learning = False
        found = list(reward.score_many(played))
    alone = [reward.score(trajectory) for trajectory in played]
    for together, single in zip(found, alone, strict=True):
        expect(
            _close(together, single),
            f"{what}: says {together} where score, called in the same order, says {single}",
        )


def _learns(make: Callable[[], Reward], played: Sequence[Trajectory]) -> bool:
    """Whether scoring changes the memory of a reward that can be told not to learn."""
    reward: Any = make()
    if not hasattr(reward, "learning") or not hasattr(reward, "state_dict"):
        return False
    before = copy.deepcopy(reward.state_dict())
    reward.score_many(played)
    return not same(before, reward.state_dict())


def _check_memory(make: Callable[[], Reward], played: Sequence[Trajectory]) -> None:
    reward: Any = make()
    if not hasattr(reward, "state_dict"):
        return
    name = type(reward).__name__
    expect_members(reward, "load_state_dict")
    expect_resumes(make, lambda part, step: _all_scores(part, played[step % 2 :]), (0, 1, 4), 6)
    _all_scores(reward, played)
    if hasattr(reward, "learning"):
        before = copy.deepcopy(reward.state_dict())
        reward.learning = False
        _all_scores(reward, played)
        expect(
            same(before, reward.state_dict()),
            f"{name}: an evaluation (learning is False) changed the memory",
        )


def _all_scores(reward: Any, played: Sequence[Trajectory]) -> list[Score]:
    many = getattr(reward, "score_many", None)
    return list(many(played)) if many else [reward.score(t) for t in played]


def _close(a: Score, b: Score) -> bool:
    """Equal up to rounding: a batch of another size may add in another order."""
    if (a.total is None) != (b.total is None) or a.parts.keys() != b.parts.keys():
        return False
    pairs = [(a.total or 0.0, b.total or 0.0), (a.success, b.success)]
    pairs += [(a.parts[name], b.parts[name]) for name in a.parts]
    near = all(math.isclose(x, y, rel_tol=1e-4, abs_tol=1e-5) for x, y in pairs)
    return near and a.missing == b.missing


def _check_score(make: Callable[[], Reward], trajectory: Trajectory, what: str) -> Score:
    score = expect_repeats(make, lambda reward: reward.score(trajectory), what, trajectory)
    expect(isinstance(score, Score), f"{what}: expected core.types.Score, got {score!r}")
    if score.total is not None:
        expect_number(f"{what}: total", score.total)
    expect_number(f"{what}: success", score.success)
    expect(0 <= score.success <= 1, f"{what}: success is {score.success}, expected 0 to 1")
    for part, value in score.parts.items():
        expect_number(f"{what}: the part {part}", value)
    expect(isinstance(score.missing, tuple), f"{what}: missing is {score.missing!r}, not a tuple")
    return score


def _episode(outcome: Mapping[str, Any], stop: Stop) -> Trajectory:
    task = Task(id="t", messages=({"role": "user", "content": "?"},), answer="def f():\n  return 2")
    logprobs = np.full(3, -1.0, np.float32)
    made = Generation(action_ids=[5, 6, 7], logprobs=logprobs, finish=Finish.STOP)
    turns = (Turn(prompt_ids=[1, 2], generation=made, text="def f():\n  return 1"),)
    return Trajectory(
        task=task, sibling=0, turns=turns, stop=stop, outcome=dict(outcome), policy_version=0
    )


def _expect_messages(what: str, messages: Any) -> None:
    for message in messages:
        right = set(message) == {"role", "content"} and all(
            isinstance(text, str) for text in message.values()
        )
        expect(right, f"{what}: {message!r} is not a message with role and content")


def _expect_plain(what: str, value: Any) -> None:
    try:
        json.dumps(value)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"{what}: cannot be written as JSON ({error})") from error
