"""One hostile answer among right ones costs itself and nothing else, and its texts are readable."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from code_envs import attempt, make_env

from selfdistill_cli.core.hints import HintKind
from selfdistill_cli.core.types import Task
from selfdistill_cli.envs.code.env import CodeEnv

RIGHT = "def f(x):\n    return {2: 991, 3: 992}[x]"
FRAME = (
    "import json, os, sys\n"
    "def f(x):\n"
    "    name = sys._getframe(2).f_locals['call']['id']\n"
    "    body = json.dumps({{'id': name, 'status': 'returned', 'value': {value}}}).encode()\n"
    "    os.write(3, len(body).to_bytes(4, 'big') + body)\n"
    "    os.read(3, 1)\n"
)
HOSTILE = {
    "digits": "def f(x):\n    return 10**5000",
    "short complex": FRAME.format(value="['complex', '1']"),
    "extra parts": FRAME.format(value="['list', [], " + "[" * 800 + "]" * 800 + "]"),
    "surrogate": "def f(x):\n    return '\ud800'",
    "control": "def f(x):\n    raise ValueError('\\ud800 \\x1b[2J \\x00')",
}


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CodeEnv]:
    check = (
        "def check(candidate):\n    assert candidate(2) == 991\n    assert candidate(3) == 992\n"
    )
    asserts = {"test_list": ["assert f(2) == 991", "assert f(3) == 992"]}
    calls = {"calls": [{"args": [2], "expected": 991}, {"args": [3], "expected": 992}]}
    path: Path = tmp_path_factory.mktemp("data") / "tasks.jsonl"
    forms = {"check": {"test": check}, "asserts": asserts, "calls": calls}
    path.write_text(
        "\n".join(
            json.dumps({"task_id": name, "prompt": "Write f(x).", "entry_point": "f", **form})
            for name, form in forms.items()
        )
    )
    made = make_env(data=str(path))
    yield made
    made.close()


def tasks(env: CodeEnv) -> dict[str, Task]:
    return {task.id: task for task in env.tasks("train")}


@pytest.mark.parametrize("form", ["check", "asserts", "calls"])
@pytest.mark.parametrize("name", HOSTILE)
def test_the_others_are_graded(env: CodeEnv, form: str, name: str) -> None:
    task = tasks(env)[form]
    episodes = [env.episode(task, 0) for _ in range(4)]
    results = env.step_many(episodes, [RIGHT, HOSTILE[name], RIGHT, RIGHT])
    share = [result.outcome["passed"] / result.outcome["total"] for result in results]
    assert share == [1.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize("form", ["check", "asserts", "calls"])
@pytest.mark.parametrize("name", ["surrogate", "control"])
@pytest.mark.parametrize("kind", ["own_wrong_answer", "feedback"])
def test_texts_can_be_shown_and_sent_to_a_tokenizer(
    env: CodeEnv, form: str, name: str, kind: HintKind
) -> None:
    task = tasks(env)[form]
    trajectories, scores = attempt(env, task, HOSTILE[name])
    messages = [test["message"] for test in trajectories[0].outcome["tests"]]
    hint = env.hint(kind, task, trajectories, scores, 0, seed=0)
    assert hint is not None
    for text in (*messages, trajectories[0].outcome["error"], hint.text):
        assert all(char in "\n\t" or char.isprintable() for char in text)
        text.encode()
