"""Files of mathematics problems: GSM8K, MATH, plain answers, and errors that name the line."""

from __future__ import annotations

import gzip
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from math_envs import math_env

from selfdistill_cli.config.compose import compose
from selfdistill_cli.config.rules import violations
from selfdistill_cli.core.errors import DataError
from selfdistill_cli.envs.math.data import read_problems
from selfdistill_cli.envs.math.gym import GUESSABLE, REFUSED
from selfdistill_cli.envs.math.gym_scorers import OWN
from selfdistill_cli.testing import check_env

GSM = {
    "question": "Nat sold clips to 48 friends in April, and half as many in May. How many?",
    "answer": "In May: 48/2 = <<48/2=24>>24 clips.\nBoth: 48+24 = <<48+24=72>>72.\n#### 72",
}
MATH = {
    "problem": "What is $1-\\frac12$?",
    "solution": "Half is left: $\\boxed{\\frac{1}{2}}$.",
    "level": "Level 1",
    "type": "Algebra",
    "unique_id": "test/algebra/1.json",
}
PLAIN = {"id": 3, "question": "2*3?", "answer": 6, "skill": "add 3 twice", "split": "test"}


def written(folder: Path, *lines: Any) -> str:
    path = folder / "problems.jsonl"
    path.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines))
    return str(path)


def test_three_forms_are_read(tmp_path):
    gsm, math, plain = read_problems(written(tmp_path, GSM, MATH, PLAIN))
    assert (gsm.answer, gsm.evidence) == ("72", ("48/2=24",))
    assert gsm.working == "In May: 48/2 = 24 clips.\nBoth: 48+24 = 72."
    assert re.fullmatch("[0-9a-f]{16}", gsm.id)
    assert (math.answer, math.kind, math.id) == ("\\frac{1}{2}", "Algebra", "test/algebra/1.json")
    assert math.working == "Half is left: $\\frac{1}{2}$."
    assert (plain.answer, plain.id, plain.split, plain.skill) == ("6", "3", "test", "add 3 twice")


@pytest.mark.parametrize("form", ["hash", "boxed", "tag", "any"])
def test_a_file_keeps_the_contract_and_its_references_are_right(tmp_path, form):
    lines = [{**GSM, "question": f"{i}?"} for i in range(30)] + [MATH]
    path = written(tmp_path, *lines)
    check_env(lambda: math_env(data=path, answer_format=form), actions=("", "72", "#### 1"))
    env = math_env(data=path, answer_format=form)
    tasks = [task for split in ("train", "validation", "test") for task in env._all_tasks()[split]]
    assert len(tasks) == 31
    assert all(env.grade(task, task.answer)["success"] == 1.0 for task in tasks)


def test_splits_do_not_depend_on_the_other_lines(tmp_path):
    lines = [{"question": f"{i}?", "answer": "1"} for i in range(300)]
    whole = math_env(data=written(tmp_path, *lines))
    half_path = tmp_path / "half.jsonl.gz"
    with gzip.open(half_path, "wt") as file:
        file.write("\n\n".join(map(json.dumps, reversed(lines[::2]))))
    half = math_env(data=str(half_path))
    for split in ("train", "validation", "test"):
        assert {t.id for t in half.tasks(split)} <= {t.id for t in whole.tasks(split)}
    assert 10 < len(whole.tasks("test")) < 60


def test_a_repeated_question_is_left_out_and_told(tmp_path, caplog):
    assert len(read_problems(written(tmp_path, GSM, GSM, MATH))) == 2
    assert "1 lines repeat a question" in caplog.text


WRONG = {
    "no question": ({"answer": "1"}, 'line 2, field "question"'),
    "empty question": ({"question": " ", "answer": "1"}, "no words"),
    "near name": ({"question": "x", "anwser": "1"}, "did you mean 'anwser'"),
    "no box": ({"problem": "x", "solution": "it is 2"}, "no \\boxed"),
    "nothing after": ({"question": "x", "answer": "so ####  "}, "nothing after ####"),
    "list": ({"question": "x", "answer": [1]}, "list"),
    "split": ({"question": "x", "answer": "1", "split": "trian"}, "did you mean 'train'"),
    "id": ({"question": "x", "answer": "1", "id": True}, "a string or a whole number"),
    "twice": ({**GSM, "id": "a"}, "also on line 1"),
    "surrogate": ('{"question": "\\ud800", "answer": "1"}', "lone surrogate"),
    "no JSON": ("{", "line 2: not JSON"),
    "no object": ("[1]", "found a JSON list"),
    "deep": ("[" * 100_000, "not JSON"),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_name_file_line_and_remedy(tmp_path, name):
    line, said = WRONG[name]
    path = written(tmp_path, {**GSM, "id": "a"}, line)
    with pytest.raises(DataError, match=re.escape(said)) as caught:
        read_problems(path)
    assert path in str(caught.value)


def test_files_that_are_none(tmp_path):
    broken = tmp_path / "broken.jsonl.gz"
    broken.write_bytes(b"\x1f\x8b\x08broken")
    (tmp_path / "latin.jsonl").write_bytes(b'{"question": "\xff"}')
    for path, said in (
        (tmp_path, "is a folder"),
        (tmp_path / "none.jsonl", "no such file"),
        (broken, "cannot be read"),
        (tmp_path / "latin.jsonl", "UTF-8"),
    ):
        with pytest.raises(DataError, match=said):
            read_problems(str(path))
    with pytest.raises(DataError, match="found no problem"):
        read_problems(written(tmp_path, ""))


def test_an_answer_that_the_form_cannot_hold_is_told(tmp_path):
    path = written(tmp_path, {"question": "x", "answer": "1\n2"})
    with pytest.raises(DataError, match=r"env\.answer_format=tag"):
        math_env(data=path, validation_fraction=0.0, test_fraction=0.0).tasks("train")
    env = math_env(data=path, validation_fraction=0.0, test_fraction=0.0, answer_format="tag")
    assert env.grade(env.tasks("train")[0], "<answer>1\n2</answer>")["success"] == 1.0


def test_a_missing_file_is_told_before_a_run_and_a_family_is_no_file():
    def told(data: str) -> str:
        return "\n".join(violations(compose(["env=math", f"env.data={data}"]).settings))

    assert "env.data: got 'nothing.jsonl', no such file" in told("nothing.jsonl")
    assert "env.data" not in told("reasoning_gym:gcd")


def test_the_page_tells_every_setting_with_its_default_and_every_family():
    text = (Path(__file__).parents[2] / "docs/envs/math.md").read_text(encoding="utf-8")
    container = compose(["env=math"]).container["env"]
    lines = [line.split("|") for line in text.splitlines()]
    rows = {line[1].strip(): line[2].strip() for line in lines if len(line) > 3}
    for name, value in container.items():
        if name != "_target_":
            shown = yaml.safe_load(rows[f"`{name}`"].strip("`"))
            assert shown == value, name
    for name in (*REFUSED, *OWN, *GUESSABLE):
        assert f"`{name}`" in text, name


def test_the_commands_of_the_page_are_understood(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("gsm8k.jsonl", "FILE"):
        (tmp_path / name).write_text(json.dumps(GSM))
    (tmp_path / "DIR").mkdir()
    text = (Path(__file__).parents[2] / "docs/envs/math.md").read_text(encoding="utf-8")
    commands = [line for line in text.splitlines() if line.startswith("selfdistill train")]
    assert len(commands) >= 6
    for command in commands:
        words = shlex.split(command, comments=True)[2:]
        assert violations(compose(words).settings) == [], command
