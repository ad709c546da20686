"""A line stays in its split: pinned, since a run that continues, or a comparison, relies on it."""

from __future__ import annotations

import json

import pytest
from math_envs import math_env
from search_envs import search
from tool_envs import PYTHON, WRITING, tools_env

from selfdistill_cli.envs.code.data import read_tasks

IDS = [*(f"task {i}" for i in range(12)), "HumanEval/33", "ü"]
TEST, VALIDATION = {"task 2", "task 3", "task 8", "task 11", "HumanEval/33"}, {"task 5", "task 9"}
PINNED = {
    "train": set(IDS) - TEST - VALIDATION - {"ü"},
    "validation": VALIDATION | {"ü"},
    "test": TEST,
}
SHARES = {"validation_fraction": 0.3, "test_fraction": 0.2}


def written(folder, name, **fields):
    path = folder / "lines.jsonl"
    lines = [json.dumps({name: task_id, **fields}) for task_id in IDS]
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def code(folder):
    path = written(folder, "task_id", prompt="f", entry_point="f", test_list=["assert f()"])
    tasks = read_tasks(path, 0.3, 0.2)
    return {split: {task.id for task in tasks[split]} for split in PINNED}


def math(folder):
    env = math_env(data=written(folder, "id", question="1?", answer="1"), **SHARES)
    return {split: {task.id for task in env.tasks(split)} for split in PINNED}


def tools(folder):
    (folder / "own.py").write_text(PYTHON, encoding="utf-8")
    paths = {"tools": str(folder / "own.py"), "data": written(folder, "id", prompt="x", answer=1)}
    env = tools_env(**{**WRITING, **paths, **SHARES})
    return {split: {task.id for task in env.tasks(split)} for split in PINNED}


def own_corpus(folder):
    pages = folder / "pages.jsonl"
    pages.write_text(json.dumps({"id": "a", "title": "A", "text": "b"}), encoding="utf-8")
    path = written(folder, "id", question="a?", answer="b")
    env = search(corpus=str(pages), questions=path, **SHARES)
    return {split: {task.meta["id"] for task in env.tasks(split)} for split in PINNED}


@pytest.mark.parametrize("env", [code, math, tools, own_corpus])
def test_the_split_of_an_id_is_pinned(tmp_path, env):
    assert env(tmp_path) == PINNED
