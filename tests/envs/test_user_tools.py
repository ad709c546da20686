"""A user's own tools and tasks, and the Berkeley panels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tool_envs import PYTHON, TASKS, WRITING, native, played, tools_env

from selfdistill_cli.core.errors import ConfigError, DataError
from selfdistill_cli.envs.agents.actions import Action
from selfdistill_cli.envs.tools import bfcl
from selfdistill_cli.envs.tools.calls import Expected, same_loosely, unmatched
from selfdistill_cli.envs.tools.domain import ToolsDomain
from selfdistill_cli.testing import check_env

SCHEMAS = [
    {"name": "weather", "description": "Weather of a town.", "parameters": {
        "type": "object", "required": ["town"],
        "properties": {"town": {"type": "string"}, "unit": {"enum": ["C", "F"]}}}},
    {"type": "function", "function": {"name": "clock", "description": "The time."}},
]  # fmt: skip
COMPARED = [
    {"prompt": "How warm is it in Rome?", "split": "train", "calls": [
        {"name": "weather", "arguments": {"town": "Rome", "unit": "C"},
         "alternatives": {"town": ["Roma"]}, "optional": ["unit"]}]},
    {"prompt": "Hello.", "calls": [], "split": "train"},
    {"prompt": "Weather in Rome and Oslo?", "split": "train", "calls": [
        {"name": "weather", "arguments": {"town": "Rome"}},
        {"name": "weather", "arguments": {"town": "Oslo"}}]},
]  # fmt: skip


def write(folder: Path, tools: object, tasks: list | str):
    """An environment of these files."""
    name = "own.py" if isinstance(tools, str) else "own.json"
    text = tools if isinstance(tools, str) else json.dumps(tools)
    (folder / name).write_text(text, encoding="utf-8")
    lines = tasks if isinstance(tasks, str) else "\n".join(map(json.dumps, tasks))
    (folder / "own.jsonl").write_text(lines, encoding="utf-8")
    paths = {"tools": str(folder / name), "data": str(folder / "own.jsonl")}
    return tools_env(**{**WRITING, **paths})


def test_functions_become_tools_and_the_final_state_decides(tmp_path):
    env = write(tmp_path, PYTHON, TASKS)
    first, second = env.tasks("train")
    assert '"required": ["account", "amount"]' in first.messages[0]["content"]
    assert '"description": "whose"' in first.messages[0]["content"]
    assert "_helper" not in first.messages[0]["content"]
    give = native("deposit", account="ada", amount=5)
    assert played(env, first, [give, native("done")])["success"] == 1.0
    outcome = played(env, first, [give, give, native("done")])
    assert outcome["success"] == 0.0
    assert outcome["difference"] == ["ada: is 11, should be 6"]
    for task in (first, second):
        assert played(env, task, env.expert(task, 0) or [])["success"] == 1.0
    assert env.hint("answer", second, (), (), None, 0).text.endswith('{"text": 7}}')


def test_errors_of_a_user_s_function_are_observations(tmp_path):
    env = write(tmp_path, PYTHON, TASKS)
    episode = env.episode(env.tasks("train")[0], 0)
    said = episode.step(native("deposit", account="ada", amount=-1)).observation[0]["content"]
    assert said == "Error: ValueError: negative amount"
    said = episode.step(native("balance", account="x")).observation[0]["content"]
    assert said == "Error: KeyError: 'x'"
    assert episode.step(native("done")).outcome["failed_calls"] == 2


def test_a_user_s_check_and_setup(tmp_path):
    hooks = (
        "\ndef setup(task):\n    return {'ada': 10}\n"
        "\ndef check(state, answer, task):\n    return state['ada'] / 20\n"
    )
    env = write(tmp_path, PYTHON + hooks, [{"prompt": "Make it 20.", "split": "train"}])
    task = env.tasks("train")[0]
    give = native("deposit", account="ada", amount=10)
    assert played(env, task, [give, native("done")])["success"] == 1.0
    outcome = played(env, task, [native("done")])
    assert outcome["success"] == 0.5
    assert outcome["difference"] == ["the check of the task did not pass"]
    assert env.expert(task, 0) is None
    bad = write(tmp_path, PYTHON + hooks.replace("/ 20", "/ '20'"), [TASKS[1]])
    task = bad.tasks("train")[0]
    with pytest.raises(DataError, match=r"own.py, line 28: check raised TypeError"):
        played(bad, task, [native("answer", text=7)])


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def f(:", r"own.py, line 1: cannot be imported: SyntaxError"),
        ("import json\n1/0", r"own.py, line 2: cannot be imported: ZeroDivisionError"),
        ("import sys\nsys.exit(3)", "cannot be imported: SystemExit"),
        ("x = 1", "no function that could be a tool"),
        ("def f(a: int):\n    pass", "f has no docstring"),
        ("def f(a):\n    'Doc.'", "'a' has no type hint"),
        ("def f(a: set):\n    'Doc.'", "f: a has the type <class 'set'>"),
        ("def f(*a: int):\n    'Doc.'", "not a parameter with a name"),
        ("def f(a: 'Nowhere'):\n    'Doc.'", "type hints cannot be read"),
        ("def done():\n    'Doc.'", "rename the function"),
        ("def f():\n    'Doc.'\ndef check(a):\n    pass", r"expected check\(state, answer, task\)"),
    ],
)
def test_a_broken_file_of_functions_is_told(tmp_path, source, said):
    with pytest.raises(DataError, match=said):
        write(tmp_path, source, TASKS).tasks("train")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("{", "line 1: not JSON"),
        ("[]", "line 1: found a JSON list"),
        ("\n", "found no task"),
        ([{"promt": "x", "answer": 1}], "did you mean 'prompt'"),
        ([{"prompt": " ", "answer": 1}], 'field "prompt": found no words'),
        ([{"prompt": "x"}], "a function check"),
        ([{"prompt": "x", "answer": [1]}], "a text or a number"),
        ([{"prompt": "x", "answer": 1, "split": "tset"}], "did you mean 'test'"),
        ([{"prompt": "x", "answer": 1, "id": "a"}] * 2, "also on line 1"),
        ([{"prompt": "x", "answer": 1, "calls": [{"name": "balanc"}]}], "did you mean 'balance'"),
        ([{"prompt": "x", "answer": 1,
           "calls": [{"name": "balance", "arguments": {"account": 1}}]}], "not of type 'string'"),
    ],
)  # fmt: skip
def test_broken_tasks_are_told(tmp_path, lines, said):
    with pytest.raises(DataError, match=said):
        write(tmp_path, PYTHON, lines).tasks("train")


def test_files_that_are_not_there_are_told(tmp_path):
    write(tmp_path, PYTHON, TASKS)
    paths = {"tools": str(tmp_path / "onw.py"), "data": str(tmp_path / "own.jsonl")}
    with pytest.raises(DataError, match=r"no such file.*did you mean 'own.py'"):
        tools_env(**{**WRITING, **paths}).tasks("train")
    paths = {"tools": str(tmp_path / "own.py"), "data": str(tmp_path / "onw.jsonl")}
    env = tools_env(**{**WRITING, **paths})
    for asked in (lambda: env.tasks("train"), env.fingerprint):
        with pytest.raises(DataError, match=r"env\.data=.*no such file.*'own.jsonl'"):
            asked()


def test_choosing_needs_a_list(tmp_path):
    write(tmp_path, PYTHON, TASKS)
    paths = {"tools": str(tmp_path / "own.py"), "data": str(tmp_path / "own.jsonl")}
    with pytest.raises(ConfigError, match='field "choices"'):
        tools_env(**paths).tasks("train")
    calls = [*TASKS[0]["calls"], {"name": "done", "arguments": {}}]
    task = {**TASKS[0], "choices": [calls[1], calls[0]]}
    (tmp_path / "own.jsonl").write_text(json.dumps(task), encoding="utf-8")
    env = tools_env(**paths)
    assert env.expert(env.tasks("train")[0], 0) == ["2", "1"]
    (tmp_path / "own.jsonl").write_text(json.dumps({**task, "choices": calls[1:]}))
    with pytest.raises(DataError, match="every call of an expert"):
        tools_env(**paths).tasks("train")


def test_calls_are_compared_where_nothing_runs(tmp_path):
    env = write(tmp_path, SCHEMAS, COMPARED)
    rome, hello, both = env.tasks("train")
    done = native("done")
    for town in ("Rome", "Roma"):
        assert played(env, rome, [native("weather", town=town), done])["success"] == 1.0
    for wrong in ({"town": "Oslo"}, {"town": "Rome", "unit": "F"}):
        outcome = played(env, rome, [native("weather", **wrong), done])
        assert outcome["success"] == outcome["progress"] == 0.0
        assert len(outcome["difference"]) == 2
    assert played(env, hello, [done])["success"] == 1.0
    assert played(env, hello, [native("clock"), done])["success"] == 0.0
    towns = [native("weather", town=town) for town in ("Oslo", "Rome")]
    assert played(env, both, [*towns, done])["success"] == 1.0
    assert played(env, both, [towns[0], done])["progress"] == 0.5
    assert played(env, both, [*towns, towns[0], done])["success"] == 0.0
    for task in env.tasks("train"):
        assert played(env, task, env.expert(task, 0) or [])["success"] == 1.0


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ({}, "no list of tools"),
        ([{"nam": "x"}], "tool 1: found"),
        ([SCHEMAS[1], SCHEMAS[1]], "'clock' is there twice"),
        ([{"name": "done"}], "built-in way to end"),
        ([{"name": "f", "parameters": {"type": "object"}}], "found parameters"),
        ([{"name": "f", "parameters": {"type": "objekt", "properties": {}}}], "no JSON schema"),
        ([{"name": "f", "parameters": {"properties": {}, "required": ["a"]}}], r"names \['a'\]"),
    ],
)
def test_a_broken_list_of_tools_is_told(tmp_path, tools, said):
    with pytest.raises(DataError, match=said):
        write(tmp_path, tools, COMPARED).tasks("train")


@pytest.mark.parametrize("kind", ["functions", "schemas"])
def test_the_contract_of_environments(tmp_path, kind):
    def make():
        if kind == "functions":
            return write(tmp_path, PYTHON, TASKS)
        return write(tmp_path, SCHEMAS, COMPARED)

    texts = ("", native("done"), native("deposit", account="ada", amount=1), native("clock"))
    check_env(make, actions=texts)
    assert make().fingerprint() == make().fingerprint()


def test_the_best_matching_is_found():
    """The first call fits both, the second one only what a greedy choice gave away."""
    wide = Expected(name="f", allowed={"a": [1, 2]}, optional=[], loose=False)
    narrow = Expected(name="f", allowed={"a": [1]}, optional=[], loose=False)
    made = [Action(name="f", arguments={"a": a}) for a in (1, 2)]
    assert unmatched(made, [wide, narrow]) == ([], [])
    assert unmatched(made[1:], [narrow, wide]) == ([], [narrow])


@pytest.mark.parametrize(
    ("found", "right", "same"),
    [
        ("April 1, 2024", "april 1 2024", True), ("it's", 'it"s', True), ("a", "b", False),
        (5, 5.0, True), (True, 1, False), ([1, "A."], [1, "a"], True), ([1], [1, 2], False),
        ({"a": "X"}, {"a": ["x", "y"], "b": [1, ""]}, True), ({}, {"a": ["x"]}, False),
        ({"c": 1}, {"a": [""]}, False), ("5", 5, False),
    ],
)  # fmt: skip
def test_loose_comparison(found, right, same):
    assert same_loosely(found, right) is same


QUESTION = {
    "id": "simple_python_7",
    "question": [[{"role": "user", "content": "Paint the north wall of the shed in sea green."}]],
    "function": [{"name": "wall.paint", "description": "Paints.", "parameters": {
        "type": "dict", "required": ["side", "layers"], "properties": {
            "side": {"type": "string"}, "colour": {"type": "string"}, "layers": {"type": "float"},
            "spots": {"type": "tuple", "items": {"type": "any"}}}}}],
}  # fmt: skip
ANSWER = {
    "id": "simple_python_7",
    "ground_truth": [{"wall.paint": {"side": ["north"], "colour": ["sea green", "Seagreen"],
                                     "layers": [1, ""], "spots": [[], ""]}}],
}  # fmt: skip


def panel(folder: Path, question: dict, answer: dict):
    """The tasks of a panel of one line, in the form of the package."""
    (folder / "possible_answer").mkdir(exist_ok=True)
    (folder / bfcl.FILES["simple"]).write_text(json.dumps(question))
    (folder / "possible_answer" / bfcl.FILES["simple"]).write_text(json.dumps(answer))
    return list(bfcl.read_panel("simple", folder))


def test_a_panel_s_form_is_read(tmp_path):
    (task,) = panel(tmp_path, QUESTION, ANSWER)
    (tool,) = task.meta["tools"]
    assert tool["parameters"]["properties"] == {
        "side": {"type": "string"}, "colour": {"type": "string"}, "layers": {"type": "number"},
        "spots": {"type": "array", "items": {}},
    }  # fmt: skip
    domain = ToolsDomain(tools_env(**WRITING)._settings)

    def success(*calls):
        world = domain.world(task, 0)
        for name, arguments in calls:
            world.act(Action(name=name, arguments=arguments))
        return world.facts()["success"]

    right = {"side": "North.", "colour": "SEAGREEN", "layers": 1.0}
    assert success(("wall.paint", right)) == 1.0
    assert success(("wall.paint", {**right, "spots": []})) == 1.0
    assert success(("wall.paint", {**right, "spots": [1]})) == 0.0
    assert success(("wall.paint", {"side": "north", "layers": 1})) == 0.0
    assert success(("done", {})) == 0.0
    expert = domain.world(task, 0).expert()
    assert success((expert.name, expert.arguments)) == 1.0


def test_another_form_is_told(tmp_path):
    with pytest.raises(DataError, match=r"line 1: not in the form of version"):
        panel(tmp_path, {"id": "simple_python_7", "question": "?"}, ANSWER)


def test_the_real_panels_are_solved_by_their_own_answers():
    try:
        bfcl.folder()
    except ConfigError:
        pytest.skip("bfcl_eval is not installed (pip install --no-deps bfcl_eval==2026.3.23)")
    for name in bfcl.FILES:
        env = tools_env(**WRITING)
        tasks = env.tasks(f"bfcl_{name}")
        assert len(tasks) >= 200
        for task in tasks[::4]:
            assert played(env, task, env.expert(task, 0) or [])["success"] == 1.0, task.id
