"""The code environment: user data, grading."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from code_envs import FIXTURE, make_env, task_of

from selfdistill_cli.core.errors import ConfigError, DataError, FieldError
from selfdistill_cli.envs.code import family
from selfdistill_cli.envs.code.comparing import equal
from selfdistill_cli.envs.code.env import CodeEnv
from selfdistill_cli.envs.code.programs import extract_program
from selfdistill_cli.envs.splitting import SPLITS


@pytest.fixture(scope="module")
def built_in() -> Iterator[CodeEnv]:
    env = make_env()
    yield env
    env.close()


@pytest.fixture(scope="module")
def users() -> Iterator[CodeEnv]:
    env = make_env(data=FIXTURE)
    yield env
    env.close()


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("def f(): pass", "def f(): pass"),
        ("Sure:\n```python\na = 1\n```\nor\n```py\nb = 2\n```\nDone.", "b = 2\n"),
        ("```python\na = 1\n```\nprints\n```\n1\n```", "a = 1\n"),
        ("```\na = 1\n```", "a = 1\n"),
        ("```python\ndef f():\n    return 1", "def f():\n    return 1"),
        ("    return x", "    return x"),
    ],
)
def test_extract_program(text: str, program: str) -> None:
    assert extract_program(text) == program


@pytest.mark.parametrize(
    ("actual", "expected", "verdict"),
    [
        (0.1 + 0.2, 0.3, True),
        (3, 3.0, True),
        (math.nan, math.nan, True),
        (math.inf, 1e308, False),
        (10**400, 1.0, False),
        ((1, [2]), [1, (2,)], True),
        ([1, 2], [1, 2, 3], False),
        ({"a": (1,)}, {"a": [1]}, True),
        ({"a": 1}, {"b": 1}, False),
        ("1", 1, False),
        ("1.0", 1.0, False),
        (None, 0, False),
        ({1, 2}, {2, 1}, True),
    ],
)
def test_equal(actual: Any, expected: Any, verdict: bool) -> None:
    assert equal(actual, expected) is verdict


def test_reference_answers_pass(users: CodeEnv) -> None:
    tasks = [task for task in users.tasks("train") if task.answer]
    outcomes = users.grade(tasks, [task.answer for task in tasks])
    assert len(tasks) == 4
    assert [(o["passed"], o["compiled"]) for o in outcomes] == [(1, True)] * 3 + [(3, True)]


@pytest.mark.parametrize(
    "answer",
    [
        "    return n % 2 == 0",
        "def is_even(n):\n    return n % 2 == 0",
        "Here it is.\n```python\nfrom math import pi\ndef is_even(n):\n    return not n % 2\n```",
    ],
)
def test_an_answer_may_continue_or_repeat_the_prompt(users: CodeEnv, answer: str) -> None:
    outcome = users.grade([task_of(users, "Mini/1")], [answer])[0]
    assert outcome["passed"] == outcome["total"] == 1


def test_a_repeated_function_still_finds_imports_and_helpers(users: CodeEnv) -> None:
    answer = "def root(line: List[float]) -> float:\n    return -line[0] / poly([line[1]], 0)"
    outcome = users.grade([task_of(users, "Mini/0")], [answer])[0]
    assert outcome["passed"] == 1, outcome


def test_outcomes_name_what_went_wrong(users: CodeEnv) -> None:
    own = task_of(users, "own/4")
    answers = ["def double(x):\n    return x + 2", "def double(x) return", "def g(x): return x"]
    outcomes = users.grade([own] * 3, answers)
    assert [(o["passed"], o["total"], o["compiled"]) for o in outcomes] == [
        (1, 3, True),
        (0, 3, False),
        (0, 3, True),
    ]
    tests = outcomes[0]["tests"]
    assert [test["status"] for test in tests] == ["passed", "raised", "failed"]
    assert tests[2]["message"] == "double(0.1) returned 2.1, expected 0.2"
    assert outcomes[1]["error"].startswith("SyntaxError")
    assert json.loads(json.dumps(outcomes)) == outcomes


def test_episode_and_batch_agree(users: CodeEnv) -> None:
    task = task_of(users, "Mini/2")
    answers = ["    return a / b", task.answer]
    episodes = [users.episode(task, seed) for seed in range(2)]
    many = users.step_many(episodes, answers)
    assert many == [users.episode(task, 0).step(answer) for answer in answers]
    assert [result.outcome["passed"] for result in many if result.outcome] == [0, 1]
    assert all(result.done for result in many)


def test_built_in_tasks(built_in: CodeEnv) -> None:
    tasks = [built_in.tasks(split)[i] for split in SPLITS for i in range(5)]
    outcomes = built_in.grade(tasks, [task.answer for task in tasks])
    assert all(outcome["passed"] == outcome["total"] > 0 for outcome in outcomes)
    wrong = built_in.grade(tasks, [family.wrong_program(task, 0) for task in tasks])
    assert all(outcome["passed"] < outcome["total"] for outcome in wrong)


def test_prompts(users: CodeEnv) -> None:
    assert task_of(users, "3").messages[0]["content"].endswith("Name the function shared.")
    assert task_of(users, "3").meta["entry_point"] == "shared"
    assert task_of(users, "Mini/1").messages[0]["content"].startswith("def is_even(n):")
    env = make_env(data=FIXTURE, instructions="Answer with code only.")
    messages = env.tasks("train")[0].messages
    assert [message["role"] for message in messages] == ["system", "user"]


def test_splits_are_checked(users: CodeEnv) -> None:
    with pytest.raises(ConfigError, match="did you mean 'validation'"):
        users.tasks("valid")
    with pytest.raises(DataError, match="no task falls into split 'validation'"):
        users.tasks("validation")
    with pytest.raises(FieldError, match=r"at most 0\.3"):
        make_env(validation_fraction=0.7, test_fraction=0.7)


def test_tests_that_fail_by_themselves_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = {"prompt": "f", "entry_point": "f", "test_list": ["assert f() == 1"]}
    lines = [{"task_id": f"t{i}", **broken, "test_setup_code": "import nothing"} for i in range(2)]
    path = tmp_path / "tasks.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    env = make_env(data=str(path))
    tasks = env.tasks("train")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            env.grade(tasks, ["def f():\n    return 1"] * 2)
    env.close()
    (record,) = caplog.records
    assert "the tests of 2 tasks fail by themselves" in record.getMessage()
    assert "task t0: the test code failed: ModuleNotFoundError" in record.getMessage()


def test_the_fingerprint_follows_the_content(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(Path(FIXTURE).read_text())
    first = make_env(data=str(path)).fingerprint()
    assert make_env(data=FIXTURE).fingerprint() == first
    path.write_text(Path(FIXTURE).read_text().replace("1", "2", 1))
    assert make_env(data=str(path)).fingerprint() != first
    assert make_env().fingerprint() == make_env().fingerprint() != first
