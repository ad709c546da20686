"""Actions, formats and episodes: whatever an agent writes, it is an action or is told why not."""

from __future__ import annotations

import json

import pytest
from counting_world import TOOLS, counting
from hypothesis import given
from hypothesis import strategies as st

from selfdistill_cli.core.errors import FieldError
from selfdistill_cli.core.types import Score, Stop, Trajectory
from selfdistill_cli.envs.agents.actions import Action, Malformed, check, tool
from selfdistill_cli.envs.agents.formats import FORMATS
from selfdistill_cli.testing import check_env

ADD = Action(name="add", arguments={"number": 2})
STOP = Action(name="stop")
TWO = Action(name="move", arguments={"from": "a b", "to": "c"}, thought="why not")
LATER = Action(name="list", arguments={"sort": "size"})
FLAG = Action(name="list", arguments={"all": True})
BOTH = tool("move", "Moves.", **{"from": "string", "to": "string"})
LIST = tool("list", "Lists.", required=False, folder="string", sort="string", all="boolean")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("action", [ADD, STOP, TWO, LATER, FLAG])
def test_what_an_expert_writes_is_read_back(name, action):
    tools, choices = [*TOOLS, BOTH, LIST], [STOP, TWO, ADD, LATER, FLAG]
    text = FORMATS[name].render(action, choices, tools)
    found = FORMATS[name].parse(text, tools, choices)
    assert (found.name, dict(found.arguments)) == (action.name, dict(action.arguments))
    assert found.thought == action.thought
    check(found, tools)


WRONG = {
    "tags": {
        "no tag": "add 2",
        "unknown": "<action>ad 2</action>",
        "no value": "<action>add</action>",
        "surplus": "<action>stop now</action>",
        "broken JSON": '<action>{"name": </action>',
        "no name": "<action>{}</action>",
        "not closed": "<action>stop",
        "action in a thought": "<think><action>stop</action></think>",
    },
    "json": {
        "text": "stop",
        "list": "[1]",
        "arguments": '{"name": "add", "arguments": [2]}',
        "text arguments": '{"name": "add", "arguments": "2"}',
        "nested": '{"a":' * 5000,
    },
    "native": {"no tag": '{"name": "stop"}', "empty": "<tool_call></tool_call>"},
    "words": {"none": "go", "part of a word": "sto", "nothing": "  ", "more": "stop now"},
    "choices": {"word": "stop", "zero": "0", "large": "4", "huge": "9" * 5000, "two": "1 2"},
}
CASES = [(name, case) for name in WRONG for case in WRONG[name]]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_what_is_no_action_is_told(name, case):
    def read():
        check(FORMATS[name].parse(WRONG[name][case], TOOLS, [ADD, STOP]), TOOLS)

    with pytest.raises(Malformed) as caught:
        read()
    assert 0 < len(str(caught.value)) < 300


def test_arguments_must_fit_the_schema():
    for arguments, said in (
        ({"number": "2"}, "number"),
        ({}, "required"),
        ({"numbr": 2}, "did you mean 'number'"),
    ):
        with pytest.raises(Malformed, match=said):
            check(Action(name="add", arguments=arguments), TOOLS)
    with pytest.raises(Malformed, match="did you mean 'stop'"):
        check(Action(name="stpo"), TOOLS)


@given(text=st.text(max_size=200), name=st.sampled_from(sorted(FORMATS)))
def test_no_text_crashes_an_episode(text, name):
    env = counting(format=name)
    episode = env.episode(env.tasks("train")[0], 0)
    result = episode.step(text)
    assert result.outcome is not None
    json.dumps(result.outcome)


def test_an_invalid_action_is_an_observation_and_is_counted():
    env = counting()
    episode = env.episode(env.tasks("train")[3], 0)
    first = episode.step("<action>add 20</action>")
    assert not first.done
    assert first.observation[0]["content"].startswith("Invalid action: the number is larger than 9")
    second = episode.step("<action>add 4</action>")
    assert second.observation[0]["content"] == "sum 4\nadd 1\nadd 2\nstop"
    last = episode.step("<action>stop</action>")
    assert last.done
    assert last.outcome == {
        "success": 1.0, "sum": 4, "steps": 3, "invalid_actions": 1, "format": pytest.approx(2 / 3),
        "actions": ["(invalid) <action>add 20</action>", "add 4", "stop"],
    }  # fmt: skip


def test_an_episode_ends_after_max_steps_and_long_observations_are_cut():
    env = counting(max_steps=2, max_observation=16, show_choices=False)
    episode = env.episode(env.tasks("train")[7], 0)
    shown = episode.step("x" * 1000).observation[0]["content"]
    assert len(shown) <= 17
    assert episode.step("<action>add 1</action>").done


def test_the_prompt_names_tools_and_shows_the_first_observation():
    env = counting()
    system, user = env.tasks("train")[1].messages
    assert "add number: Adds a number." in system["content"]
    assert user["content"] == "reach 2\nsum 0\nadd 1\nadd 2\nstop"
    plain = counting(describe_tools=False, format="choices").tasks("train")[1].messages
    assert [m["content"] for m in plain] == ["reach 2\nsum 0\n1 add 1\n2 add 2\n3 stop"]


def test_choices_need_their_list():
    for name in ("choices", "words"):
        with pytest.raises(FieldError, match="picks from the list"):
            counting(format=name, show_choices=False)


def test_a_listed_action_is_told_by_its_first_words():
    env = counting(format="words")
    task = env.tasks("train")[1]
    assert task.messages[-1]["content"].endswith("add 1\nadd 2\nstop")
    assert env.expert(task, 0) == ["add 2", "stop"]
    episode = env.episode(task, 0)
    several = episode.step("add").observation[0]["content"]
    assert several.startswith("Invalid action: 2 listed actions start with that; write more words")
    assert episode.step("<think>two</think> add  2").outcome["actions"][-1] == "add 2"


@pytest.mark.parametrize("name", FORMATS)
def test_experts_solve_every_task(name):
    env = counting(format=name)
    for task in env.tasks("train"):
        texts = env.expert(task, 0)
        assert texts is not None
        episode = env.episode(task, 0)
        results = [episode.step(text) for text in texts]
        assert results[-1].done
        assert results[-1].outcome["success"] == 1.0
        assert results[-1].outcome["invalid_actions"] == 0
    assert counting(max_steps=2).expert(env.tasks("train")[7], 0) is None


def attempts(env, task, *texts):
    """Trajectories and scores of attempts that write these texts."""
    found = []
    for sibling, words in enumerate(texts):
        episode = env.episode(task, 0)
        outcome = [episode.step(f"<action>{word}</action>") for word in words][-1].outcome
        found.append(
            Trajectory(
                task=task, sibling=sibling, turns=(), stop=Stop.DONE, outcome=outcome,
                policy_version=0,
            )
        )  # fmt: skip
    scores = [Score(total=0.0, success=t.outcome["success"], parts={}) for t in found]
    return found, scores


def test_hints_come_from_attempts():
    env = counting()
    task = env.tasks("train")[2]
    found, scores = attempts(env, task, ["add 3", "stop"], ["add 2", "stop"])

    def given_to(kind, index):
        hint = env.hint(kind, task, found, scores, index, 0)
        return None if hint is None else hint.text

    assert given_to("sibling", 1) == "add 3; stop"
    assert given_to("sibling", 0) is None
    assert given_to("own_wrong_answer", 1) == "add 2; stop"
    assert given_to("own_wrong_answer", 0) is None
    assert given_to("feedback", 1) == "add 2; stop\nthe sum was 2, not 3"
    assert given_to("meta_skill", 1) == "worked: add 3; stop\nfailed: add 2; stop"
    assert given_to("answer", None) == "3"
    assert given_to("pruned", None) is None


@pytest.mark.parametrize("name", FORMATS)
def test_the_contract_of_environments(name):
    check_env(lambda: counting(format=name), actions=("", "1", "3", "<action>stop</action>"))
