"""From a Python function with type hints and a docstring to a tool with a JSON schema."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, Union, get_args, get_origin

from selfdistill_cli.envs.agents.actions import Tool

STATE = "state"
"""A first parameter of this name is the episode's state; the agent does not see it."""
TYPES: dict[Any, str] = {
    str: "string", int: "integer", float: "number", bool: "boolean", list: "array",
    dict: "object", type(None): "null",
}  # fmt: skip
DESCRIBED = re.compile(r"^\s*(\w+)(?:\s*\([^)]*\))?:\s+(\S.*)$", re.MULTILINE)


class BadFunction(ValueError):
    """A function cannot be a tool; the message says what it lacks."""


def tool_of(function: Callable[..., Any]) -> Tool:
    """Return a function's tool: its name, the first line of its docstring, a schema of its hints.

    Lines `name: text` of the docstring describe parameters. Raises BadFunction.
    """
    name = function.__name__
    document = inspect.getdoc(function) or ""
    if not document.strip():
        raise BadFunction(f"{name} has no docstring; its first line tells the agent what it does")
    try:
        hints = typing.get_type_hints(function)
    except Exception as error:  # a user's annotation may be anything
        raise BadFunction(f"{name}: its type hints cannot be read ({error})") from None
    described = dict(DESCRIBED.findall(document.partition("\n")[2]))
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in parameters_of(function):
        if parameter.name not in hints:
            raise BadFunction(f"{name}: parameter '{parameter.name}' has no type hint")
        properties[parameter.name] = _schema(hints[parameter.name], f"{name}: {parameter.name}")
        if parameter.name in described:
            properties[parameter.name]["description"] = described[parameter.name]
        if parameter.default is inspect.Parameter.empty:
            required.append(parameter.name)
    schema = {"type": "object", "properties": properties, "required": required}
    return Tool(name=name, description=document.split("\n")[0].strip(), parameters=schema)


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return what an agent fills in; raises BadFunction for *args, **kwargs, positional-only."""
    found = list(inspect.signature(function).parameters.values())
    if takes_state(function):
        found = found[1:]
    for parameter in found:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise BadFunction(
                f"{function.__name__}: '{parameter}' is not a parameter with a name; a schema "
                "names every parameter"
            )
    return found


def takes_state(function: Callable[..., Any]) -> bool:
    """Whether the first parameter is the state."""
    return next(iter(inspect.signature(function).parameters), None) == STATE


def _schema(hint: Any, where: str) -> dict[str, Any]:
    """Return the JSON schema of a type; raises BadFunction."""
    if hint is Any:
        return {}
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, types.UnionType):
        kinds = [_schema(kind, where) for kind in inner]
        if all(set(kind) == {"type"} for kind in kinds):
            return {"type": [kind["type"] for kind in kinds]}
        return {"anyOf": kinds}
    if origin is list:
        return {"type": "array", "items": _schema(inner[0], where)}
    if (origin or hint) in (dict, Mapping):
        return {"type": "object"}
    if hint in TYPES:
        return {"type": TYPES[hint]}
    raise BadFunction(
        f"{where} has the type {hint}; expected str, int, float, bool, list, dict, Literal, None, "
        "Any, or a union of these"
    )
