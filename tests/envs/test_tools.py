"""The built-in tasks: experts solve them, nothing leaks, the final state decides."""

from __future__ import annotations

import copy
import json
import random
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tool_envs import WRITING, native, played, tools_env

from selfdistill_cli.core.errors import ConfigError, FieldError
from selfdistill_cli.core.types import Score, Stop, Trajectory
from selfdistill_cli.envs.tools.calculator import ToolError, calculate
from selfdistill_cli.envs.tools.choices import choices_of
from selfdistill_cli.envs.tools.domain import actions
from selfdistill_cli.envs.tools.drawing import SPLITS, split_of
from selfdistill_cli.envs.tools.long_templates import TEMPLATES
from selfdistill_cli.envs.tools.settings import PANELS, TEMPLATE_CALLS
from selfdistill_cli.envs.tools.state import changes, differences, same_answer, same_value
from selfdistill_cli.envs.tools.toolbox import FUNCTIONS, TOOLS, empty_state
from selfdistill_cli.envs.tools.units import convert
from selfdistill_cli.testing import check_env

FORMATS = ("tags", "json", "native", "choices", "words")


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", FORMATS)
def test_experts_solve_every_task(name, split):
    env = tools_env(format=name, max_calls=5, other_tasks=44, train_tasks=220)
    for task in env.tasks(split):
        texts = env.expert(task, 0)
        assert texts is not None, task.id
        outcome = played(env, task, texts)
        assert outcome["success"] == outcome["progress"] == outcome["format"] == 1.0
        assert outcome["difference"] == []
        assert outcome["failed_calls"] == 0
        assert len(texts) == TEMPLATE_CALLS[task.meta["template"]] + 1


def test_settings_and_templates_name_the_same_kinds():
    assert {name: t.num_calls for name, t in TEMPLATES.items()} == TEMPLATE_CALLS
    assert len(TEMPLATES) >= 12
    kinds = Counter(t.meta["template"] for t in tools_env(max_calls=5).tasks("validation"))
    assert kinds.keys() == TEMPLATES.keys()


def test_tasks_are_a_function_of_split_and_number():
    first, again = (tools_env(train_tasks=50).tasks("train") for _ in range(2))
    assert first == again
    assert tools_env(train_tasks=10).tasks("train") == first[:10]
    assert first[0].id == "train 0 remember"


def test_splits_share_no_name_and_no_request():
    env = tools_env(max_calls=5, train_tasks=400)
    names = {}
    for split in SPLITS:
        words = {
            word
            for task in env.tasks(split)
            for word in re.findall(r"\b(?:[bcdfghjklmnprstvwz][aeiou]){2,3}\b",
                                   json.dumps([task.meta["calls"], task.meta["state"]]))
        }  # fmt: skip
        names[split] = words - {"name", "data", "done"}  # a field, a folder, a tool
        assert len(names[split]) > 500
        assert [name for name in names[split] if split_of(name) != split] == []
    requests = {s: {t.messages[-1]["content"] for t in env.tasks(s)} for s in SPLITS}
    assert not requests["train"] & (requests["test"] | requests["validation"])


def test_practice_tells_nothing_but_hints_do():
    env = tools_env()
    task = env.tasks("practice")[0]
    assert task.messages[-1]["content"].startswith("Do what is asked of you.")
    hint = env.hint("answer", task, (), (), None, 0)
    assert hint is not None
    assert hint.text.startswith("put ")


@pytest.mark.parametrize("limit", [4, 6, 8, 12])
def test_choices_hold_the_expert_s_call_and_do_not_reveal_it(limit):
    env = tools_env(num_choices=limit, max_calls=5, train_tasks=440)
    places: Counter[int] = Counter()
    for task in env.tasks("train"):
        for text in env.expert(task, 0) or []:
            places[int(text)] += 1
    assert max(places) <= limit
    common = places.most_common()
    assert common[0][1] < 1.6 * sum(places.values()) / limit  # no place stands out


def test_right_and_decoy_calls_are_treated_alike():
    """Exchanging the plans exchanges nothing in the list: it does not say which one is right."""
    alike = 0
    tasks = tools_env(max_calls=2, train_tasks=150).tasks("train")
    for task in tasks:
        plans = [actions(calls) for calls in (task.meta["calls"], *task.meta["decoys"])]
        swapped = [plans[1], plans[0], *plans[2:]]
        for place in range(len(plans[0])):
            found, other = (
                {json.dumps(a.call()) for a in choices_of(p, place, limit=8, key=task.id)}
                for p in (plans, swapped)
            )
            alike += len(found & other) >= len(found) - 2
            assert json.dumps(plans[0][place].call()) in found & other
    assert alike >= 0.95 * sum(len(task.meta["calls"]) for task in tasks)


def test_a_random_agent_seldom_succeeds():
    env = tools_env(train_tasks=400)
    drawn, total = random.Random(0), 0.0
    tasks = env.tasks("train")
    for task in tasks:
        episode, done, outcome = env.episode(task, 0), False, {}
        while not done:
            result = episode.step(str(drawn.randint(1, 8)))
            done, outcome = result.done, result.outcome
        total += outcome["success"]
    assert total / len(tasks) < 0.12


def test_side_effects_and_forgotten_ends_fail():
    env = tools_env(**WRITING, templates=["remember"], train_tasks=1)
    task = env.tasks("train")[0]
    right = native("put", **task.meta["calls"][0]["arguments"])
    wrong = native("put", key="other", value=1)
    assert played(env, task, [right, native("done")])["success"] == 1.0
    assert played(env, task, [right, native("answer", text="ok")])["success"] == 1.0
    assert played(env, task, [right])["success"] == 0.0
    assert played(env, task, [native("done")])["success"] == 0.0
    outcome = played(env, task, [right, wrong, native("done")])
    assert outcome["success"] == 0.0
    assert outcome["difference"] == ["store other: should not be there, is 1"]
    mended = [right, wrong, native("delete_key", key="other"), native("done")]
    assert "delete_key" not in task.meta["tools"] or played(env, task, mended)["success"] == 1.0


def test_an_answer_may_come_from_thought_but_must_be_right():
    env = tools_env(**WRITING, templates=["look_up"], train_tasks=1)
    task = env.tasks("train")[0]
    value = task.meta["answer"]
    assert played(env, task, [native("answer", text=str(value))])["success"] == 1.0
    outcome = played(env, task, [native("answer", text=value + 1)])
    assert outcome["success"] == outcome["progress"] == 0.0
    assert outcome["difference"] == [f"answer: is {value + 1}, should be {value}"]


def test_calls_that_cannot_be_done_are_observations_and_malformed_ones_are_counted():
    env = tools_env(**WRITING, templates=["look_up"], train_tasks=1)
    task = env.tasks("train")[0]
    key = task.meta["calls"][0]["arguments"]["key"]
    episode = env.episode(task, 0)
    said = episode.step(native("get", key=key + "x")).observation[0]["content"]
    assert said == f"Error: there is no key '{key}x'; did you mean '{key}'?"
    said = episode.step(native("get", key=5)).observation[0]["content"]
    assert said == "Invalid action: 'get': key: 5 is not of type 'string'"
    last = episode.step(native("done"))
    assert last.outcome is not None
    assert last.outcome["failed_calls"] == last.outcome["invalid_actions"] == 1


def attempts(env, task, *texts):
    found = [
        Trajectory(
            task=task, sibling=i, turns=(), stop=Stop.DONE, outcome=played(env, task, words),
            policy_version=0,
        )
        for i, words in enumerate(texts)
    ]  # fmt: skip
    return found, [Score(total=0.0, success=t.outcome["success"], parts={}) for t in found]


@pytest.mark.parametrize("name", ["choices", "native"])
def test_every_declared_hint_is_given_and_says_something_else(name):
    changed = {} if name == "choices" else WRITING
    env = tools_env(**{**changed, "train_tasks": 15, "prompt_skills": "builtin"})
    for task in env.tasks("train"):
        right = env.expert(task, 0) or []
        wrong = right[:1]  # not ended
        found, scores = attempts(env, task, wrong, right)
        assert [score.success for score in scores] == [0.0, 1.0]
        texts = {
            kind: hint.text
            for kind in env.hints
            if (hint := env.hint(kind, task, found, scores, 0, 0)) is not None
        }
        assert texts.keys() == env.hints, task.id
        assert texts.pop("pruned") == ""
        same = texts.pop("sibling")
        assert same == texts["answer"]  # the only way that was found
        assert len(set(texts.values())) == len(texts)
        assert task.meta["skill"] == texts["skill"]


def test_feedback_says_what_is_wrong():
    env = tools_env(**WRITING, templates=["remember"], train_tasks=1)
    task = env.tasks("train")[0]
    found, scores = attempts(env, task, [native("done")])
    hint = env.hint("feedback", task, found, scores, 0, 0)
    call = task.meta["calls"][0]["arguments"]
    assert hint is not None
    assert hint.text == f"done\nstore {call['key']}: is missing, should be {call['value']}"


@pytest.mark.parametrize("name", FORMATS)
def test_the_contract_of_environments(name):
    texts = ("", "1", "3", native("done"), "<action>keys</action>", '{"name": "list_files"}')
    check_env(lambda: tools_env(format=name, train_tasks=30), actions=texts)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
NAMES = st.sampled_from([*FUNCTIONS, "done", "answer", "nothing"])


HOSTILE = tools_env(**WRITING, extra_tools=16, train_tasks=22)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), name=NAMES)
def test_no_call_crashes_the_toolbox(data, name):
    env = HOSTILE
    task = env.tasks("train")[data.draw(st.integers(0, 21))]
    known = TOOLS[name].parameters["properties"] if name in TOOLS else {}
    drawn = data.draw(st.dictionaries(st.sampled_from([*known, "text", "x"]), JSON))
    before = copy.deepcopy(dict(task.meta))
    episode = env.episode(task, 0)
    for text in (native(name, **drawn), data.draw(st.text(max_size=60))):
        result = episode.step(text)
        json.dumps(result.outcome).encode()
        if result.done:
            break
    assert task.meta == before


@pytest.mark.parametrize(
    ("text", "value"),
    [("2 + 3 * 4", 14), ("(2+3)*4", 20), ("7/2", 3.5), ("-2**2", -4), ("0.1+0.2", 0.3), ("7//2", 3),
     ("7 % 4", 3), (" 5 ", 5), ("2**-1", 0.5)],
)  # fmt: skip
def test_arithmetic(text, value):
    assert calculate(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "a", "1+", "__import__('os')", "(1).real", "[1]", "1 if 1 else 2", "'a'*9", "True", "1j",
     "9**9**9", "2**65", "1e16", "1/0", "0**-1", "(-8)**0.5", "(" * 150, "1" * 201, "9" * 100,
     "1+" * 99 + "1", "lambda: 1", "1e15*1e15", "\ud800", "\x00", "-" * 190 + "1e999"],
)  # fmt: skip
def test_what_is_no_bounded_arithmetic_is_refused(text):
    if text == "1+" * 99 + "1":
        assert calculate(text) == 100
        return
    with pytest.raises(ToolError):
        calculate(text)


@given(st.text(alphabet="0123456789+-*/%(). e_", max_size=40))
def test_arithmetic_ends_with_a_number_or_a_refusal(text):
    try:
        found = calculate(text)
    except ToolError as error:
        found = float(0 < len(str(error)) < 200)
    assert isinstance(found, int | float)
    assert abs(found) <= 1e15


def test_units():
    assert convert(12, "mi", "km") == 19.31
    assert convert(100, "C", "F") == 212
    assert convert(2, "h", "min") == 120
    for unit, to in (("mi", "kg"), ("C", "m"), ("m", "C"), ("x", "m")):
        with pytest.raises(ToolError):
            convert(1, unit, to)
    with pytest.raises(ToolError):
        convert(float("nan"), "m", "km")


def test_the_calendar_keeps_events_apart():
    state = empty_state()
    FUNCTIONS["create_event"](state, "a", "mon", 9, 2)
    assert FUNCTIONS["find_free_slot"](state, "mon", 1) == "free from 8"
    assert FUNCTIONS["find_free_slot"](state, "mon", 2) == "free from 11"
    for words in (("b", "mon", 10, 1), ("a", "tue", 9, 1), ("b", "mon", 23, 2), ("b", "mon", 9, 0)):
        with pytest.raises(ToolError):
            FUNCTIONS["create_event"](state, *words)
    FUNCTIONS["move_event"](state, "a", "mon", 10)  # over its own old place
    assert FUNCTIONS["list_events"](state, "mon") == "a mon 10-12"
    with pytest.raises(ToolError, match="no 10 free hours"):
        FUNCTIONS["find_free_slot"](state, "mon", 10)


def test_files_and_store():
    state = empty_state()
    FUNCTIONS["write_file"](state, "a/b.txt", "one")
    FUNCTIONS["append_file"](state, "a/b.txt", "two")
    FUNCTIONS["move_file"](state, "a/b.txt", "c.txt")
    assert FUNCTIONS["read_file"](state, "c.txt") == "one\ntwo"
    assert FUNCTIONS["list_files"](state, "a") == "no files"
    FUNCTIONS["put"](state, "k", 3)
    assert (FUNCTIONS["keys"](state), FUNCTIONS["get"](state, "k")) == ("k", "3")
    with pytest.raises(ToolError, match=r"did you mean 'c\.txt'"):
        FUNCTIONS["delete_file"](state, "d.txt")


def test_states_are_compared_by_meaning():
    assert same_value("12", 12.0)
    assert same_value({"a": [1, "x\n"]}, {"a": [1.0, "x"]})
    assert not same_value(True, 1)
    assert not same_value("a", "b")
    assert same_answer(" The  Cat", "the cat")
    found, goal = {"s": {"a": 1, "b": 2}}, {"s": {"b": 3, "c": 4}}
    assert differences(found, goal) == [
        "s a: should not be there, is 1", "s b: is 2, should be 3", "s c: is missing, should be 4",
    ]  # fmt: skip
    assert changes(found, goal) == ["s a is gone", "s b = 3", "s c = 4"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"templates": ["invoise"]}, "did you mean 'invoice'"),
        ({"templates": ["invoice"]}, "at least 5"),
        ({"data": "x.jsonl"}, "together with env.tools"),
        ({"data": "bfcl:simpel"}, "did you mean 'simple'"),
        ({"tools": "t.txt", "data": "x.jsonl"}, "FILE.py, FILE.json"),
        ({"tools": "t.py"}, "a file of tasks for env.tools"),
        ({"max_calls": 6}, "from 1 to 5"),
        ({"num_choices": 2}, "from 4 to 12"),
    ],
)
def test_settings_that_do_not_fit_are_told(changed, said):
    with pytest.raises(FieldError, match=said):
        tools_env(**changed)


def test_an_unknown_split_is_told():
    with pytest.raises(ConfigError, match="did you mean 'test'"):
        tools_env().tasks("tets")
    assert {f"bfcl_{panel}" for panel in PANELS} < set(tools_env().splits)


def test_pruned_takes_general_skills_and_leaves_the_task():
    env = tools_env(train_tasks=15, prompt_skills="builtin")
    for task in env.tasks("train"):
        full = task.messages[-1]["content"]
        hint = env.hint("pruned", task, (), (), None, 0)
        assert hint is not None
        assert hint.messages is not None
        left = hint.messages[-1]["content"]
        assert "General skills:" in full
        assert "General skills:" not in left
        assert full.endswith(left)
        assert task.meta["skill"] in left
    plain = tools_env(train_tasks=1)
    assert plain.hint("pruned", plain.tasks("train")[0], (), (), None, 0) is None
