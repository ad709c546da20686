"""The Berkeley function-calling tasks that the package bfcl_eval ships, read as data.

The package is never imported: its files are found beside it. Nothing of it is in this project.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from selfdistill_cli.core.errors import DataError
from selfdistill_cli.core.types import Message, Task
from selfdistill_cli.envs.agents.actions import Action
from selfdistill_cli.envs.json_lines import lines_of
from selfdistill_cli.envs.packages import BFCL
from selfdistill_cli.envs.tools.calls import Expected
from selfdistill_cli.envs.tools.schema_tools import tool_from
from selfdistill_cli.envs.tools.settings import TASKS

FILES: dict[str, str] = {
    "simple": "BFCL_v4_simple_python.json",
    "multiple": "BFCL_v4_multiple.json",
    "parallel": "BFCL_v4_parallel.json",
    "parallel_multiple": "BFCL_v4_parallel_multiple.json",
    "irrelevance": "BFCL_v4_irrelevance.json",
}
SINGLE = ("simple", "multiple", "irrelevance")
"""Panels in which one call, or none, is right: the first call ends the episode."""
TYPES = {
    "dict": "object", "float": "number", "tuple": "array", "any": None, "integer": "integer",
    "string": "string", "boolean": "boolean", "array": "array", "object": "object",
    "number": "number",
}  # fmt: skip
"""Their names of types, as JSON schema has them."""


def folder() -> Path:
    """Return the folder with the data; raises ConfigError with the remedy."""
    for place in BFCL.require("bfcl"):
        if (place / "data").is_dir():
            return place / "data"
    raise BFCL.missing("bfcl", "it holds no folder data")


def panel_file(panel: str, data: Path) -> Path:
    """Return the file of a panel's questions or answers; raises ConfigError."""
    place = data / FILES[panel]
    if not place.is_file():
        raise BFCL.missing(f"env.data=bfcl:{panel}", f"it holds no {FILES[panel]}")
    return place


def read_panel(panel: str, data: Path | None = None) -> Iterator[Task]:
    """Yield the tasks of a panel; raises ConfigError, DataError."""
    data = folder() if data is None else data
    questions = panel_file(panel, data)
    answers: dict[str, Any] = {}
    if panel != "irrelevance":
        solutions = panel_file(panel, data / "possible_answer")
        answers = {
            r["id"]: r["ground_truth"]
            for r in (line.record for line in lines_of(str(solutions), TASKS))
        }
    for line in lines_of(str(questions), TASKS):
        try:
            yield make_task(line.record, answers.get(line.record["id"], []), panel)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise DataError(
                f"{line.where}: not in the form of version 2026.3.23 of bfcl_eval "
                f"({type(error).__name__}: {error}); expected that version: {BFCL.install}"
            ) from None


def make_task(record: Mapping[str, Any], truth: Sequence[Mapping[str, Any]], panel: str) -> Task:
    """Return the task of a question and its possible answers."""
    needed = {f["name"]: f["parameters"].get("required", []) for f in record["function"]}
    expected = [expected_of(call, needed) for call in truth]
    where = f"bfcl task {record['id']}"
    tools = [tool_from(_function(f, expected), where) for f in record["function"]]
    ended = [Expected(**call, loose=True).example() for call in expected]
    ended += [] if truth and panel in SINGLE else [Action(name="done")]
    return Task(
        id=f"bfcl {record['id']}",
        messages=tuple(
            Message(role=m["role"], content=m["content"]) for m in record["question"][0]
        ),
        answer="; ".join(action.short() for action in ended),
        meta={
            "kind": "calls", "calls": [action.call() for action in ended],
            "expected": expected, "loose": True, "single": panel in SINGLE,
            "choices": [], "skill": None, "evidence": [],
            "tools": [
                {"name": t.name, "description": t.description, "parameters": dict(t.parameters)}
                for t in tools
            ],
        },
    )  # fmt: skip


def expected_of(
    call: Mapping[str, Mapping[str, list[Any]]], needed: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Return name, allowed values and optional parameters of `{name: {parameter: [values]}}`.

    "" among the values means that the parameter may be left out, unless the tool needs it.
    """
    ((name, parameters),) = call.items()
    return {
        "name": name,
        "allowed": {
            parameter: [value for value in values if value != ""] or [""]
            for parameter, values in parameters.items()
        },
        "optional": [
            parameter
            for parameter, values in parameters.items()
            if "" in values and parameter not in needed.get(name, ())
        ],
    }


def _function(function: Mapping[str, Any], expected: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a function's schema as JSON schema.

    Where a right value does not have the declared type (a variable's name for a list), the type
    is left out, as the leaderboard accepts such a value too.
    """
    from jsonschema import Draft202012Validator

    parameters = json_schema(function["parameters"])
    for call in expected:
        example = Expected(**call, loose=True).example()
        for name, value in example.arguments.items() if call["name"] == function["name"] else ():
            schema = parameters["properties"].get(name)
            if schema is not None and not Draft202012Validator(schema).is_valid(value):
                parameters["properties"][name] = {
                    key: schema[key] for key in ("description",) if key in schema
                }
    return {**function, "parameters": parameters}


def json_schema(value: Any) -> Any:
    """Return a schema with the types of JSON schema; unknown types and `optional` are left out."""
    if isinstance(value, list):
        return [json_schema(item) for item in value]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for key, inner in value.items():
        if key == "type" and isinstance(inner, str):
            if TYPES.get(inner) is not None:
                found[key] = TYPES[inner]
        elif key == "properties" and isinstance(inner, dict):
            found[key] = {name: json_schema(schema) for name, schema in inner.items()}
        elif key not in ("optional", "default", "enum"):
            found[key] = json_schema(inner)
        elif key != "optional":
            found[key] = json.loads(json.dumps(inner))
    return found
