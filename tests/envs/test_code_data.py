"""Files of the user's own tasks: splits, and errors that name file, line and field."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from selfdistill_cli.core.errors import DataError
from selfdistill_cli.envs.code.data import read_tasks
from selfdistill_cli.envs.splitting import SPLITS


def test_splits_do_not_depend_on_the_other_lines(tmp_path: Path) -> None:
    lines = [
        {"task_id": f"t{i}", "prompt": "f", "entry_point": "f", "test_list": ["assert f()"]}
        for i in range(400)
    ]
    whole, half = tmp_path / "whole.jsonl", tmp_path / "half.jsonl.gz"
    whole.write_text("\n".join(map(json.dumps, lines)))
    with gzip.open(half, "wt") as file:
        file.write("\n\n".join(map(json.dumps, reversed(lines[::2]))))
    one, other = (read_tasks(str(path), 0.25, 0.25) for path in (whole, half))
    assert 60 < len(one["validation"]) < 140
    assert 60 < len(one["test"]) < 140
    for split in SPLITS:
        ids = {task.id for task in other[split]}
        assert ids == {task.id for task in one[split]} & {f"t{i}" for i in range(0, 400, 2)}


GOOD: dict[str, Any] = {
    "task_id": "a",
    "prompt": "Write f.",
    "entry_point": "f",
    "test_list": ["assert f(1) == 2"],
}


def deep(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def without(name: str, **changes: Any) -> Callable[[], str]:
    record = {key: value for key, value in GOOD.items() if key != name}
    return lambda: json.dumps({**record, **changes})


BROKEN = {
    "not JSON": (lambda: "{'task_id': 1}", "not JSON"),
    "not an object": (lambda: "[1]", "found a JSON list"),
    "no id": (without("task_id", taskid="a"), r"\"task_id\".*did you mean 'taskid'"),
    "id of a wrong type": (without("task_id", task_id=[1]), '"task_id": found'),
    "no prompt": (without("prompt", promt="x"), r"\"prompt\".*did you mean 'promt'"),
    "prompt of a wrong type": (without("prompt", prompt=3), '"prompt": found int'),
    "no tests": (without("test_list", test_lst=[]), r"\"test\": found none.*'test_lst'"),
    "two kinds of tests": (without("", test="x"), "found test and test_list"),
    "no entry point": (without("entry_point", test_list=None, calls=[]), '"entry_point"'),
    "entry point not a name": (without("", entry_point="f x"), '"entry_point": found'),
    "test with a syntax error": (without("", test_list=["assert f("]), '"test_list": found'),
    "empty tests": (without("", test_list=[]), '"test_list": found an empty list'),
    "tests of a wrong type": (without("", test_list="assert f()"), "a list of strings"),
    "asserts without a call": (
        without("entry_point", test_list=["assert set() == x"]),
        "no call of a function",
    ),
    "answer with a syntax error": (without("", code="def f("), '"code": found'),
    "calls without expected": (
        without("test_list", calls=[{"args": [1]}]),
        r'"calls\[0\]": found',
    ),
    "unknown split": (
        without("", task_id="b", split="valid"),
        r"\"split\".*did you mean 'validation'",
    ),
    "half a character": (without("prompt", prompt="\ud800"), r"\"prompt\": found the lone sur"),
    "half a character in an id": (without("", task_id="\udfff"), r"\"task_id\": found the lone"),
    "half a character in a key": (
        without("test_list", calls=[{"args": [{"\ud800": 1}], "expected": 1}]),
        r"\"calls\": found the lone surrogate '\\ud800'",
    ),
    "half a character in a text that is JSON": (
        without(
            "test_list",
            input_output=json.dumps({"inputs": ["\ud800"], "outputs": ["1"]}),
        ),
        r"\"input_output\": found the lone surrogate '\\ud800'",
    ),
    "half a character in a case": (
        without(
            "test_list",
            metadata={"func_name": "f"},
            public_test_cases=[{"input": '"\\ud800"', "output": "1", "testtype": "functional"}],
        ),
        r"\"public_test_cases\": found the lone surrogate '\\ud800'",
    ),
    "no id at all": (
        without("task_id"),
        r"\"task_id\": found no such field; expected .*\"question_id",
    ),
    "no asserts": (without("entry_point", test_list=[]), '"test_list": found an empty list'),
    "keyword as entry point": (without("", entry_point="class"), "\"entry_point\": found 'class'"),
    "prompt without words": (without("", prompt=" \n"), '"prompt": found no words'),
    "arguments that cannot be sent": (
        without("test_list", calls=[{"args": deep(70), "expected": 1}]),
        r"\"calls\[0\]\.args\": found nested more than 64 deep",
    ),
    "a result that cannot come back": (
        without("test_list", calls=[{"args": [1], "expected": deep(70)}]),
        r"\"calls\[0\]\.expected\": found nested more than 64 deep",
    ),
    "id of another line": (without(""), "also on line 1"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_line_is_named(tmp_path: Path, name: str) -> None:
    line, message = BROKEN[name]
    path = tmp_path / "tasks.jsonl"
    path.write_text(f"{json.dumps(GOOD)}\n{line()}\n")
    with pytest.raises(DataError, match=message) as caught:
        read_tasks(str(path), 0.1, 0.1)
    assert str(caught.value).startswith(f"env.data={path}, line 2")


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    empty, noise = tmp_path / "empty.jsonl", tmp_path / "noise.jsonl.gz"
    empty.write_text("\n")
    noise.write_bytes(b"\x1f\x8bnot gzip")
    corrupt, cut = tmp_path / "corrupt.jsonl.gz", tmp_path / "cut.jsonl.gz"
    whole = gzip.compress(b"".join(json.dumps({"n": i}).encode() for i in range(3000)))
    corrupt.write_bytes(whole[:50] + b"\xff" * 40 + whole[90:])
    cut.write_bytes(whole[: len(whole) // 2])
    for path, message in (
        (empty, "found no task"),
        (noise, "cannot be read"),
        (corrupt, "cannot be read.*is the file whole"),
        (cut, "cannot be read.*is the file whole"),
        (tmp_path, "is a folder"),
        (tmp_path / "none.jsonl", "no such file"),
    ):
        with pytest.raises(DataError, match=message):
            read_tasks(str(path), 0.1, 0.1)


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps(GOOD), encoding="utf-8-sig")
    assert [task.id for task in read_tasks(str(path), 0.0, 0.0)["train"]] == ["a"]
