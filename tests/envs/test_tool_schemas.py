"""Schemas that a user may write: what is wrong is told when they are read, not when one acts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tool_envs import WRITING, native, played, tools_env

from selfdistill_cli.core.errors import DataError
from selfdistill_cli.envs.tools.schema_tools import read_tools, tool_from

BROKEN = {
    "type": ({"x": {"type": "strng"}}, r"properties\.x\.type is no JSON schema"),
    "pattern": ({"x": {"type": "string", "pattern": "("}}, r"properties\.x\.pattern is no JSON"),
    "reference": ({"x": {"$ref": "#/$defs/town"}}, r"\$ref '#/\$defs/town' leads nowhere"),
    "remote": ({"x": {"anyOf": [{"$ref": "http://localhost/x"}]}}, r"\$ref 'http.* leads nowhere"),
    "nothing": ({"x": False}, "found the schema False of 'x'; expected an object"),
}


def tool(properties: Any, **more: Any) -> dict[str, Any]:
    return {"name": "f", "parameters": {"type": "object", "properties": properties, **more}}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_schema_is_told(case):
    properties, said = BROKEN[case]
    with pytest.raises(DataError, match=rf"^here \('f'\): {said}"):
        tool_from(tool(properties), "here")


def test_references_within_the_parameters_and_anything_are_taken(tmp_path):
    town = {"$defs": {"a/town": {"enum": ["Rome"]}}}
    (tmp_path / "own.json").write_text(
        json.dumps([tool({"to": {"$ref": "#/$defs/a~1town"}, "note": True}, **town)])
    )
    line = {
        "prompt": "Go.",
        "split": "train",
        "calls": [{"name": "f", "arguments": {"to": "Rome"}}],
    }
    (tmp_path / "own.jsonl").write_text(json.dumps(line))
    paths = {"tools": str(tmp_path / "own.json"), "data": str(tmp_path / "own.jsonl")}
    env = tools_env(**{**WRITING, **paths})
    task = env.tasks("train")[0]
    turns = [native("f", to="Oslo"), native("f", to="Rome"), native("done")]
    outcome = played(env, task, turns)
    assert (outcome["success"], outcome["invalid_actions"]) == (1.0, 1)
    noted = played(env, task, [native("f", to="Rome", note=[1]), native("done")])
    assert noted["invalid_actions"] == 0


def test_a_file_in_another_encoding_is_told(tmp_path):
    path = tmp_path / "own.json"
    path.write_bytes(json.dumps([tool({})]).encode("utf-16"))
    with pytest.raises(DataError, match=r"own\.json: looks like UTF-16.*iconv"):
        read_tools(str(path))


def test_what_may_be_left_out_is_a_list_of_names(tmp_path):
    (tmp_path / "own.json").write_text(json.dumps([tool({"x": {"type": "string"}})]))
    call = {"name": "f", "arguments": {"x": "a"}, "optional": [["x"]]}
    (tmp_path / "own.jsonl").write_text(json.dumps({"prompt": "Go.", "calls": [call]}))
    paths = {"tools": str(tmp_path / "own.json"), "data": str(tmp_path / "own.jsonl")}
    with pytest.raises(DataError, match=r"optional\": found \[\['x'\]\]; expected a list of param"):
        tools_env(**{**WRITING, **paths}).tasks("train")


def test_a_tool_that_ends_the_program_ends_nothing(tmp_path):
    (tmp_path / "own.py").write_text(
        "def stop(state) -> str:\n    'Stops.'\n    raise SystemExit(3)\n"
    )
    line = {"prompt": "Go.", "split": "train", "answer": "x"}
    (tmp_path / "own.jsonl").write_text(json.dumps(line))
    paths = {"tools": str(tmp_path / "own.py"), "data": str(tmp_path / "own.jsonl")}
    env = tools_env(**{**WRITING, **paths})
    episode = env.episode(env.tasks("train")[0], 0)
    said = episode.step(native("stop")).observation[0]["content"]
    assert said == "Error: SystemExit: 3"
