"""Trajectories on disk: complete, readable, and with the credit of every sampled token."""

from __future__ import annotations

import dataclasses
import json

import numpy as np

from selfdistill_cli.core.types import (
    Finish,
    Generation,
    Group,
    Message,
    Sample,
    Score,
    Stop,
    Task,
    Trajectory,
    Turn,
)
from selfdistill_cli.tracking.trajectories import write_trajectories

WORDS = {1: "Say", 2: " ok", 3: "ok", 4: "", 5: " né"}


def decode(ids):
    return "".join(WORDS[i] for i in ids)


def sample(sibling=0, weights=None):
    mask = np.array([False, False, True, True, True])
    return Sample(
        token_ids=np.array([1, 2, 3, 5, 4]),
        action_mask=mask,
        turn_index=np.where(mask, 0, -1),
        sampled_logprobs=np.zeros(5, np.float32),
        sibling=sibling,
        num_prompt_tokens=2,
        advantages=np.array([0, 0, 1 / 3, -0.25, np.nan], np.float32),
        weights=weights or {},
    )


def trajectory(sibling, task):
    generation = Generation(
        action_ids=[3, 5, 4], logprobs=np.zeros(3, np.float32), finish=Finish.STOP
    )
    turn = Turn(
        prompt_ids=[1, 2],
        generation=generation,
        text="ok né",
        observation=(Message(role="user", content="thanks"),),
    )
    tests = [{"name": str(i), "status": "passed" if i else "failed"} for i in range(4)]
    outcome = {"passed": 3, "total": 4, "tests": tests, "error": "x" * 500}
    return Trajectory(
        task=task,
        sibling=sibling,
        turns=(turn,),
        stop=Stop.DONE,
        outcome=outcome,
        policy_version=7,
    )


def group(name, num=2, weights=None):
    task = Task(id=name, messages=(Message(role="user", content="Say ok"),))
    score = Score(total=0.75, success=0.0, parts={"tests": 2 / 3})
    return Group(
        task=task,
        trajectories=tuple(trajectory(i, task) for i in range(num)),
        scores=(score,) * num,
        samples=tuple(sample(i, weights) for i in range(num)),
    )


def written(tmp_path, groups, limit=100):
    path = tmp_path / "trajectories" / "step_000001.jsonl"
    write_trajectories(path, groups, decode, limit)
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_line_tells_the_whole_episode(tmp_path):
    line = written(tmp_path, [group("a")])[1]
    assert line["task"] == "a"
    assert line["sibling"] == 1
    assert line["prompt"] == "Say ok"
    assert line["turns"] == [{"text": "ok né", "finish": "stop", "observation": ["thanks"]}]
    assert (line["reward"], line["success"], line["parts"]) == (0.75, 0.0, {"tests": 0.6667})
    assert line["outcome"]["tests"] == {"failed": 1, "passed": 3}
    assert line["outcome"]["passed"] == 3
    assert len(line["outcome"]["error"]) == 201
    assert line["credit_columns"] == ["token", "advantage", "weight"]
    assert line["credit"] == [["ok", 0.3333, 1.0], [" né", -0.25, 1.0], ["<4>", None, 1.0]]


def test_text_is_written_as_people_read_it(tmp_path):
    written(tmp_path, [group("a")])
    assert "né" in (tmp_path / "trajectories/step_000001.jsonl").read_text(encoding="utf-8")


def test_each_term_with_weights_has_a_column(tmp_path):
    weights = {
        "policy": np.array([1, 1, 0.5, 2, 1], np.float32),
        "distill": np.full(5, 3, np.float32),
    }
    line = written(tmp_path, [group("a", weights=weights)])[0]
    assert line["credit_columns"][2:] == ["weight of distill", "weight of policy"]
    assert line["credit"][1] == [" né", -0.25, 3.0, 2.0]


def test_the_limit_keeps_siblings_together(tmp_path):
    lines = written(tmp_path, [group("a"), group("b"), group("c")], limit=4)
    assert [(line["task"], line["sibling"]) for line in lines] == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
        ("b", 1),
    ]


def test_a_rejected_trajectory_is_shown_without_credit(tmp_path):
    whole = group("a", num=1)
    rejected = Group(
        task=whole.task,
        trajectories=whole.trajectories,
        scores=(Score(total=None, success=0.0, parts={}, missing=("tests",)),),
        samples=(),
    )
    line = written(tmp_path, [rejected])[0]
    assert line["reward"] is None
    assert line["missing"] == ["tests"]
    assert line["credit"] == []


def test_demonstrations_have_text_and_no_score(tmp_path):
    whole = group("a", num=1)
    shown = Group(task=whole.task, trajectories=(), scores=(), samples=whole.samples)
    line = written(tmp_path, [shown])[0]
    assert (line["prompt"], line["turns"]) == ("Say ok", [{"text": "ok né"}])
    assert "reward" not in line
    assert len(line["credit"]) == 3


def test_no_text_keeps_the_file_from_being_written(tmp_path):
    task = Task(id="a", messages=())
    hostile = {
        "program": "raise ValueError('\ud800')",
        "error": "\ud800 \x1b[2J",
        "value": 10**5000,
    }
    failed = dataclasses.replace(trajectory(0, task), outcome=hostile)
    score = Score(total=0.0, success=0.0, parts={})
    group = Group(task=task, trajectories=(failed,), scores=(score,), samples=())
    write_trajectories(tmp_path / "t.jsonl", [group], decode, 5)
    (line,) = (tmp_path / "t.jsonl").read_text().splitlines()
    assert json.loads(line)["outcome"]["error"] == hostile["error"]
