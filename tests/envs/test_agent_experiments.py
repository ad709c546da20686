"""What experiment=agent_search and agent_tools ask of their environments, and what ships for them:
tasks that an expert solves, chance does not, and the embedded agent sometimes does."""

from __future__ import annotations

import random

import pytest
from running import numbers, run

from selfdistill_cli.config import rules
from selfdistill_cli.config.compose import compose
from selfdistill_cli.core.errors import ConfigError

NAMES = ("search", "tools")
SPLITS = ("train", "validation", "test", "demonstrations", "practice")


def composed(name, *words):
    """The settings of an agent's experiment."""
    return compose([f"experiment=agent_{name}", "tracker=none", *words]).settings


def chance(env, tasks):
    """Success of a player that draws one of the listed actions."""
    drawn, total = random.Random(0), 0.0
    for task in tasks:
        episode, done, outcome = env.episode(task, 0), False, {}
        while not done:
            listed, tools = episode._world.choices(), episode._world.tools()
            result = episode.step(env._format.render(drawn.choice(listed), listed, tools))
            done, outcome = result.done, result.outcome
        total += outcome["success"]
    return total / len(tasks)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("split", ["train", "validation", "demonstrations"])
def test_an_expert_solves_all_and_chance_little(name, split, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    settings = composed(name)
    assert settings.env.max_steps <= settings.rollout.max_turns
    env = settings.env.build()
    tasks = env.tasks(split)[:200]
    assert len(tasks) >= 100
    assert all(env.expert(task, 0) for task in tasks)
    assert chance(env, tasks) < 0.08


def test_the_warm_up_differs_from_the_agent_in_method_alone():
    for name in NAMES:
        warmup = compose([f"experiment=warmup_agent_{name}", "tracker=none"]).settings
        rules.check(warmup)
        agent = composed(name)
        assert warmup.method.name == "sft"
        assert warmup.policy.from_scratch
        same = ("format", "max_steps", "show_choices")
        assert [getattr(warmup.env, k) for k in same] == [getattr(agent.env, k) for k in same]


def test_made_up_worlds_of_all_splits_share_no_name(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    env = compose(["env=search", "env.worlds=made_up", "env.world_size=40"]).settings.env.build()
    used: set[str] = set()
    for split in SPLITS:
        names = {name for task in env.tasks(split) for name in task.meta["entities"]}
        assert names
        assert not used & names
        used |= names


def test_results_may_be_told_by_the_choices_alone():
    env = composed("search", "env.world_size=24").env.build()
    task = env.tasks("validation")[0]
    world = env._search.world(task, 0)
    reply = world.act(world.expert())
    assert reply.text == f"{len(world._results)} pages"
    ids = [action.arguments["page"] for action in world.choices() if action.name == "open"]
    assert task.meta["steps"][0]["page"] in ids
    with pytest.raises(ConfigError, match="list_results"):
        compose(["env=search", "env.list_results=false", "env.show_choices=false",
                 "env.format=tags"])  # fmt: skip


def test_decoys_of_other_kinds_take_other_tools():
    env = composed("tools", "env.train_tasks=200").env.build()
    kinds = set()
    for task in env.tasks("train"):
        used = {call["name"] for call in task.meta["calls"][:-1]}
        assert task.meta["decoys"]
        for decoy in task.meta["decoys"]:
            taken = {call["name"] for call in decoy[:-1]}
            assert not used & taken
            assert taken <= set(task.meta["tools"])
        listed = [action.name for action in env._domain.world(task, 0).choices()]
        assert [listed.count(name) for name in used].count(1) >= 1
        kinds.add(task.meta["template"])
    assert len(kinds) == 11


@pytest.mark.parametrize("name", NAMES)
def test_the_shipped_agent_solves_some_tasks_and_is_trained(name, tmp_path, monkeypatch):
    """Solved: more than by chance, fewer than all, so that there is something to learn."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    small = ("run.name=r", "run.max_steps=1", "batch.tasks_per_step=2", "eval.every=1",
             "eval.num_tasks=60", "eval.samples_per_task=1")  # fmt: skip
    run(tmp_path, "train", f"experiment=agent_{name}", "tracker=none", *small)
    first, last = (numbers(tmp_path / "runs/r")[i] for i in (0, -1))
    assert 0.1 < first["eval/success"] < 0.7
    assert last["rollout/env_errors"] == 0


def test_what_ships_is_small():
    for name in NAMES:
        policy = composed(name).policy.build()
        assert sum(p.numel() for p in policy.parameters()) <= 3_000_000
