"""Environments that raise, hang or return garbage, long conversations, and queues of episodes."""

from __future__ import annotations

import collections
import contextlib
import threading
import time

import pytest
from small_policies import small_policy
from test_episodes import TASKS, LengthEnv, limits, played

from selfdistill_cli.batching.samples import samples_of
from selfdistill_cli.core.protocols import StepResult
from selfdistill_cli.core.types import Message, Stop, Task
from selfdistill_cli.rollout.context import LEFT_OUT
from selfdistill_cli.rollout.runner import EnvTimeout, Job, run_jobs

FAULTS = ("raise", "spin", "sleep", "stubborn", "none", "message", "silent", "open", "surrogate")


class FaultyEpisode:
    """Two turns, or its task's fault at the second one."""

    def __init__(self, task: Task):
        self.fault, self.turns = task.meta["fault"], 0

    def step(self, action: str) -> StepResult:
        self.turns += 1
        if self.turns == 1:
            return StepResult(observation=(Message(role="user", content="more"),), done=False)
        return getattr(self, self.fault)()

    def fine(self):
        return StepResult(outcome={"success": 1.0})

    def none(self):
        return None

    def message(self):
        return StepResult(observation=({"role": "user"},), done=False)

    def surrogate(self):
        return StepResult(observation=(Message(role="user", content="\udc80"),), done=False)

    def silent(self):
        return StepResult(done=False)

    def spin(self):
        while True:
            pass

    def sleep(self):
        time.sleep(30)

    def stubborn(self):
        while True:
            with contextlib.suppress(Exception):
                time.sleep(0.001)

    def __getattr__(self, name):
        if name == "raise":
            raise RuntimeError("broken")
        raise AttributeError(name)


class FaultyEnv:
    name = "faulty"
    hints: frozenset = frozenset()

    def episode(self, task: Task, seed: int):
        if task.meta["fault"] == "open":
            raise RuntimeError("cannot be opened")
        return FaultyEpisode(task)


def faulty_task(number: int, fault: str) -> Task:
    message = Message(role="user", content=f"Write {number}")
    return Task(id=f"{number}", messages=(message,), meta={"fault": fault})


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_costs_its_own_episode(fault):
    tasks = [faulty_task(0, "fine"), faulty_task(1, fault), faulty_task(2, "fine")]
    start = time.monotonic()
    groups = played(FaultyEnv(), tasks, settings=limits(env_wall_s=0.3, env_cpu_s=0.2))
    assert time.monotonic() - start < 10
    assert [[t.stop for t in group] for group in groups] == [
        [Stop.DONE] * 2, [Stop.ENV_ERROR] * 2, [Stop.DONE] * 2,
    ]  # fmt: skip
    assert all(t.outcome["error"] for t in groups[1])
    assert all(t.outcome == {"success": 1.0} for group in groups[::2] for t in group)
    assert all(len(t.turns) == (0 if fault == "open" else 2) for t in groups[1])


def test_a_thousand_episodes_with_one_in_twenty_at_fault():
    tasks = [
        faulty_task(i, FAULTS[(i // 20) % len(FAULTS)] if i % 20 == 7 else "fine")
        for i in range(500)
    ]
    before = threading.active_count()
    groups = played(
        FaultyEnv(), tasks,
        settings=limits(max_live_tokens=4000, env_wall_s=0.2, env_cpu_s=0.2, max_new_tokens=2),
    )  # fmt: skip
    stops = collections.Counter(t.stop for group in groups for t in group)
    assert stops == {Stop.DONE: 950, Stop.ENV_ERROR: 50}
    for task, group in zip(tasks, groups, strict=True):
        assert all((t.stop is Stop.DONE) == (task.meta["fault"] == "fine") for t in group)
    time.sleep(0.3)
    asleep = 2 * sum(task.meta["fault"] == "sleep" for task in tasks)
    assert threading.active_count() - before <= asleep, "threads that run are ended"


def test_cpu_time_is_of_the_whole_episode():
    def busy() -> None:
        end = time.thread_time() + 0.1
        while time.thread_time() < end:
            pass

    jobs = [Job(call=busy, cpu_left_s=10.0), Job(call=busy, cpu_left_s=0.02)]
    run_jobs(jobs, 30.0)
    assert jobs[0].result is None
    assert 0.05 < jobs[0].cpu_s < 0.5
    assert isinstance(jobs[1].result, EnvTimeout)
    assert "env_cpu_s" in str(jobs[1].result)


def test_jobs_run_in_order_and_give_what_they_return():
    seen = []
    jobs = [Job(call=lambda i=i: seen.append(i) or i, cpu_left_s=1.0) for i in range(500)]
    run_jobs(jobs, 30.0)
    assert seen == [job.result for job in jobs] == list(range(500))
    run_jobs([], 1.0)


@pytest.mark.parametrize("live", [1, 60, 150])
def test_a_short_queue_gives_the_same_episodes(live):
    """What is admitted changes the batches, not what is sampled."""
    wide = played(LengthEnv())
    narrow = played(LengthEnv(), settings=limits(max_live_tokens=live))
    for many, few in zip(wide, narrow, strict=True):
        for a, b in zip(many, few, strict=True):
            assert [t.generation.action_ids for t in a.turns] == [
                t.generation.action_ids for t in b.turns
            ]
            assert (a.stop, a.outcome) == (b.stop, b.outcome)


class TalkativeEpisode:
    """Nine turns, each with an observation of its own."""

    def __init__(self):
        self.turns = 0

    def step(self, action: str) -> StepResult:
        self.turns += 1
        if self.turns == 9:
            return StepResult(outcome={"success": 1.0})
        text = f"Tests passed: {self.turns} of 9, and more is to be said about it"
        return StepResult(observation=(Message(role="user", content=text),), done=False)


class TalkativeEnv:
    name = "talkative"
    hints: frozenset = frozenset()

    def episode(self, task: Task, seed: int):
        return TalkativeEpisode()


def test_without_room_an_episode_ends_or_loses_its_oldest_observations():
    chat = small_policy().chat
    stopped = played(TalkativeEnv(), TASKS[:1], settings=limits(max_turns=20))[0][0]
    assert stopped.stop is Stop.MAX_TOKENS
    going = limits(max_turns=20, overflow="drop_oldest")
    trajectory = played(TalkativeEnv(), TASKS[:1], settings=going)[0][0]
    assert trajectory.stop is Stop.DONE
    assert len(trajectory.turns) == 9
    prompts = [chat.decode(list(turn.prompt_ids)) for turn in trajectory.turns]
    assert all(len(turn.prompt_ids) + 6 <= 200 for turn in trajectory.turns)
    assert any(LEFT_OUT in prompt for prompt in prompts)
    for prompt, turn in zip(prompts[1:], trajectory.turns, strict=False):
        assert turn.observation[0]["content"] in prompt, "the newest observation stays"
    samples = samples_of(trajectory)
    assert len(samples) > 1
    sampled = [i for turn in trajectory.turns for i in turn.generation.action_ids]
    trained = [i for s in samples for i in s.token_ids[s.action_mask].tolist()]
    assert trained == sampled, "every sampled id is trained once, in order"


def test_a_task_that_never_fits_ends_whatever_is_dropped():
    settings = limits(max_turns=20, overflow="drop_oldest", max_context_tokens=60)
    trajectory = played(TalkativeEnv(), TASKS[:1], settings=settings)[0][0]
    assert trajectory.stop is Stop.MAX_TOKENS
