"""Environments with gymnasium's interface, brought by users or by the package."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from guessing import Guessing

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.envs.gymnasium.env import GymnasiumEnv
from selfdistill_cli.envs.gymnasium.settings import GymnasiumSettings
from selfdistill_cli.testing import check_env

DEFAULTS: dict[str, Any] = {
    "format": "tags", "max_steps": 6, "max_observation": 400, "instructions": None,
    "describe_tools": True, "show_choices": True, "id": "guessing:make", "arguments": {},
    "request": "Play.", "success_reward": None, "train_tasks": 8, "held_out_tasks": 4,
}  # fmt: skip


def gym_env(**changes: Any) -> GymnasiumEnv:
    return GymnasiumSettings(**{**DEFAULTS, **changes}).build()


def play(env, task, *commands):
    episode, result = env.episode(task, 0), None
    for command in commands:
        result = episode.step(f"<action>do {command}</action>")
        if result.done:
            break
    return result


@pytest.mark.parametrize("name", ["tags", "json", "native"])
def test_the_contract_of_environments(name):
    texts = ("", "<action>do 3</action>", '{"name": "do", "arguments": {"command": "3"}}')
    check_env(lambda: gym_env(format=name), actions=texts)


def test_splits_have_seeds_of_their_own():
    env = gym_env()
    ids = {split: {t.id for t in env.tasks(split)} for split in ("train", "validation", "test")}
    assert [len(found) for found in ids.values()] == [8, 4, 4]
    assert len(set.union(*ids.values())) == 16
    assert len(env.tasks("demonstrations")) == 2


def test_success_is_what_info_or_the_rewards_say():
    env, by_reward = gym_env(), gym_env(arguments={"tells_success": False}, success_reward=1.0)
    task = env.tasks("train")[0]
    assert task.messages[-1]["content"] == "Play.\nGuess from 1 to 8.\n" + "\n".join(
        f"do {n}" for n in range(1, 9)
    )
    solved = 0
    for number in range(1, 9):
        outcome = play(env, task, number, number, number, number).outcome
        same = play(by_reward, task, number, number, number, number).outcome
        assert outcome["success"] == outcome["reward"] == same["success"] == same["reward"]
        solved += outcome["success"]
    assert solved == 1


def test_wrong_environments_are_told():
    for change, said in (
        ({"id": "guessing:mke"}, "has no attribute 'mke'"),
        ({"id": "no_such_module:make"}, "No module named"),
        ({"arguments": {"truns": 3}}, "unexpected keyword argument 'truns'"),
        ({"arguments": {"text": False}}, "observation is list, expected text"),
    ):
        with pytest.raises(ConfigError, match=said):
            gym_env(**change).tasks("train")
    untold = gym_env(arguments={"tells_success": False, "turns": 1})
    with pytest.raises(ConfigError, match=r"set env\.success_reward"):
        play(untold, untold.tasks("train")[0], 9)


def test_episodes_side_by_side_do_not_share_their_dice():
    env = gym_env()
    task = env.tasks("train")[0]
    alone = play(env, task, "x", "x").observation
    first, second = env.episode(task, 0), env.episode(task, 0)
    together = [[e.step("<action>do x</action>") for e in (first, second)] for _ in range(2)]
    assert [result.observation for result in together[1]] == [alone, alone]


def test_ids_that_gymnasium_knows():
    if importlib.util.find_spec("gymnasium") is None:
        pytest.skip("needs gymnasium: pip install gymnasium")
    import gymnasium

    if "Guessing-v0" not in gymnasium.registry:
        gymnasium.register("Guessing-v0", entry_point=lambda: Text(), disable_env_checker=True)

    class Text(gymnasium.Env):
        observation_space = gymnasium.spaces.Text(100)
        action_space = gymnasium.spaces.Text(100)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return "say hello", {}

        def step(self, action):
            return "ok", float(action == "hello"), True, False, {}

    env = gym_env(id="Guessing-v0", success_reward=1.0)
    assert play(env, env.tasks("train")[0], "hello").outcome["success"] == 1.0
    with pytest.raises(ConfigError, match="expected module:factory or a known id"):
        gym_env(id="Guesing-v0").tasks("train")


class Strange(Guessing):
    """Returns what no environment should."""

    def __init__(self, said):
        super().__init__()
        self.found = said

    def step(self, action):
        return self.found


STRANGE = {
    "one value": (5, "step returned 5, expected five values"),
    "no text": ((None, 0.0, False, False, {}), "the observation is NoneType, expected text"),
    "nan": (("x", float("nan"), False, False, {}), "the reward is nan, expected a finite number"),
    "no reward": (("x", None, False, False, {}), "the reward is None, expected a finite"),
    "success": (("x", 0, True, False, {"success": float("nan")}), r"info\['success'\] is nan"),
    "progress": (("x", 0, False, False, {"progress": "half"}), r"info\['progress'\] is 'half'"),
    "info": (("x", 0, False, False, [1]), "info is list, expected a mapping"),
}


@pytest.mark.parametrize("case", STRANGE)
def test_what_no_environment_should_return_is_told(case, monkeypatch):
    returned, said = STRANGE[case]
    monkeypatch.setattr("guessing.make", lambda: Strange(returned))
    env = gym_env()
    with pytest.raises(ConfigError, match=rf"env\.id=guessing:make: {said}"):
        play(env, env.tasks("train")[0], 1)


def test_an_outcome_holds_no_half_characters(monkeypatch):
    returned = ("\ud800\x1b[2J", 0.0, False, False, {"valid_actions": None})
    monkeypatch.setattr("guessing.make", lambda: Strange(returned))
    env = gym_env()
    outcome = play(env, env.tasks("train")[0], 1).outcome
    assert outcome["said"].encode().decode() == "\ufffd\ufffd[2J"


def test_choices_that_nobody_lists_are_told(monkeypatch):
    class Silent(Guessing):
        def reset(self, seed=None):
            return super().reset(seed)[0], {}

    monkeypatch.setattr("guessing.make", Silent)
    with pytest.raises(ConfigError, match=r"env\.format: got 'choices', but task .*lists no act"):
        gym_env(format="choices").tasks("train")
