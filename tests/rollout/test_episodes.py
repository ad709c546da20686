"""Episodes are played in lock-step, token-exactly, and an environment's fault costs one of them."""

from __future__ import annotations

import pytest
from small_policies import small_policy

from selfdistill_cli.batching.samples import samples_of
from selfdistill_cli.core.errors import ConfigError, SandboxError
from selfdistill_cli.core.protocols import StepResult
from selfdistill_cli.core.types import Message, Stop, Task
from selfdistill_cli.rollout.episodes import play
from selfdistill_cli.rollout.in_process import InProcessRollout
from selfdistill_cli.rollout.settings import InProcessSettings

TASKS = [
    Task(id=name, messages=(Message(role="user", content=f"Write {name}"),), meta={"turns": turns})
    for name, turns in [("f", 1), ("g", 2), ("h", 9)]
]


class LengthEpisode:
    """Asks for `turns` answers and reports their lengths."""

    def __init__(self, task: Task, seed: int):
        self.turns = task.meta["turns"]
        self.seed = seed
        self.seen: list[str] = []

    def step(self, action: str) -> StepResult:
        self.seen.append(action)
        if len(self.seen) == self.turns:
            return StepResult(outcome={"seen": tuple(self.seen), "seed": self.seed})
        said = Message(role="user", content=f"Tests passed: {len(self.seen)}")
        return StepResult(observation=(said,), done=False)


class LengthEnv:
    """An environment of `LengthEpisode`s; task `broken` raises at its second turn."""

    name = "length"
    hints: frozenset = frozenset()

    def __init__(self, fault: Exception | None = None):
        self.fault = fault

    def episode(self, task: Task, seed: int):
        episode = LengthEpisode(task, seed)
        if self.fault is not None and task.id == "h":
            fault = self.fault

            def step(action: str) -> StepResult:
                if episode.seen:
                    raise fault
                return LengthEpisode.step(episode, action)

            episode.step = step
        return episode


class BatchedLengthEnv(LengthEnv):
    """The same, stepping all episodes in one call."""

    def step_many(self, episodes, actions):
        results = []
        for episode, action in zip(episodes, actions, strict=True):
            try:
                results.append(episode.step(action))
            except RuntimeError as error:
                results.append(error)
        return results


def limits(**changes):
    base = {
        "max_new_tokens": 6,
        "temperature": 1.0,
        "max_turns": 4,
        "max_context_tokens": 200,
        "max_live_tokens": 100_000,
        "overflow": "stop",
        "env_wall_s": 30.0,
        "env_cpu_s": 30.0,
        "max_batch_rows": 64,
        "compact_fraction": 0.25,
    }
    return InProcessSettings(**{**base, **changes})


def played(env, tasks=TASKS, key=(0, "rollout", 1), settings=None, **options):
    policy = small_policy()
    policy.chat.stop_ids |= frozenset(range(20, 80))
    settings = settings or limits()
    return play(
        InProcessRollout(settings, policy),
        env,
        policy.chat,
        tasks,
        2,
        settings=settings,
        seed_key=key,
        policy_version=7,
        **options,
    )


def test_stops_turns_and_outcomes():
    groups = played(LengthEnv())
    assert [[t.stop for t in group] for group in groups] == [
        [Stop.DONE] * 2,
        [Stop.DONE] * 2,
        [Stop.MAX_TURNS] * 2,
    ]
    assert [[len(t.turns) for t in group] for group in groups] == [[1, 1], [2, 2], [4, 4]]
    for group, task in zip(groups, TASKS, strict=True):
        assert [t.sibling for t in group] == [0, 1]
        assert all(t.task is task and t.policy_version == 7 for t in group)
        assert group[0].turns[0].prompt_ids == group[1].turns[0].prompt_ids
        assert group[0].turns[0].generation.action_ids != group[1].turns[0].generation.action_ids
    first = groups[1][0]
    assert first.outcome["seen"] == tuple(turn.text for turn in first.turns)
    assert groups[2][0].outcome == {}


def test_every_episode_is_one_sample_of_the_ids_that_the_model_saw():
    policy = small_policy()
    for trajectory in (t for group in played(LengthEnv(), with_hidden=True) for t in group):
        (sample,) = samples_of(trajectory)
        assert sample.truncated == (trajectory.stop is Stop.MAX_TURNS)
        assert sample.hidden.shape == (len(sample.token_ids), policy.hidden_size)
        rest = list(sample.token_ids)
        for turn in trajectory.turns:
            both = [*turn.prompt_ids, *turn.generation.action_ids]
            assert rest[: len(both)] == both
        assert sample.action_mask.sum() == sum(
            len(turn.generation.action_ids) for turn in trajectory.turns
        )
        assert len(rest) == len(both)


def test_streams_are_keyed_by_step_task_and_sibling_not_by_order():
    def texts(groups):
        return {(t.task.id, t.sibling): [u.text for u in t.turns] for g in groups for t in g}

    expected = texts(played(LengthEnv()))
    assert texts(played(LengthEnv(), TASKS[::-1])) == expected
    assert texts(played(LengthEnv(), TASKS[1:2])) == {
        key: value for key, value in expected.items() if key[0] == "g"
    }
    assert texts(played(LengthEnv(), key=(0, "rollout", 2))) != expected
    assert texts(played(BatchedLengthEnv())) == expected
    seeds = {t.outcome["seed"] for g in played(LengthEnv()) for t in g if t.outcome}
    assert len(seeds) == 4


@pytest.mark.parametrize("env_type", [LengthEnv, BatchedLengthEnv])
def test_a_fault_costs_one_trajectory(env_type):
    groups = played(env_type(RuntimeError("disk")))
    assert [t.stop for t in groups[2]] == [Stop.ENV_ERROR] * 2
    assert groups[2][0].outcome == {"error": "RuntimeError: disk"}
    assert len(groups[2][0].turns) == 2
    assert [t.stop for group in groups[:2] for t in group] == [Stop.DONE] * 4


class FragileEnv(LengthEnv):
    """Its `step_many` cannot cope with the answer of one episode."""

    def step_many(self, episodes, actions):
        if any(episode.turns == 9 for episode in episodes):
            raise IndexError("what did this one say?")
        return [episode.step(action) for episode, action in zip(episodes, actions, strict=True)]


def test_a_step_many_that_raises_costs_no_other_trajectory():
    groups = played(FragileEnv(RuntimeError("disk")))
    assert [t.stop for t in groups[2]] == [Stop.ENV_ERROR] * 2
    assert [t.stop for group in groups[:2] for t in group] == [Stop.DONE] * 4


@pytest.mark.parametrize("env_type", [LengthEnv, BatchedLengthEnv])
def test_a_lost_sandbox_stops_everything(env_type):
    with pytest.raises(SandboxError, match="lost"):
        played(env_type(SandboxError("lost")))


def test_context_limits():
    (group,) = played(LengthEnv(), TASKS[2:], settings=limits(max_context_tokens=60))
    assert {t.stop for t in group} == {Stop.MAX_TOKENS}
    for trajectory in group:
        last = trajectory.turns[-1]
        assert len(last.prompt_ids) + 6 <= 60
    with pytest.raises(ConfigError, match=r"max_context_tokens=12.*task f.*max_new_tokens=6"):
        played(LengthEnv(), settings=limits(max_context_tokens=12))


def test_other_prompts_and_temperature():
    def hinted(task):
        return (Message(role="user", content=f"{task.id}, with a hint"),)

    policy = small_policy()
    groups = played(LengthEnv(), messages_for=hinted, temperature=0.0)
    assert groups[0][0].turns[0].prompt_ids == policy.chat.prompt_ids(hinted(TASKS[0]))
    assert groups[0][0].turns[0].text == groups[0][1].turns[0].text
