"""Actions of an agent, and the tools that they call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from selfdistill_cli.core.errors import did_you_mean


class Malformed(Exception):
    """A text is no action, or a call does not fit its tool; the message is for the agent."""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """Something that an agent can do."""

    name: str
    """What the agent writes."""
    description: str
    """One line for the agent."""
    parameters: Mapping[str, Any]
    """JSON schema of an object: `properties`, `required`."""


@dataclass(frozen=True, kw_only=True)
class Action:
    """One call of one tool."""

    name: str
    """The tool's name."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """JSON values by parameter."""
    thought: str = ""
    """What the agent wrote before it, for people."""

    def short(self) -> str:
        """Return `open 2`, or the call as JSON if an argument is no plain word."""
        values = list(self.arguments.values())
        if not values:
            return self.name
        if len(values) == 1 and isinstance(values[0], str | int) and str(values[0]).strip():
            return f"{self.name} {values[0]}"
        return json.dumps(self.call(), ensure_ascii=False)

    def call(self) -> dict[str, Any]:
        """Return `{"name": ..., "arguments": {...}}`."""
        return {"name": self.name, "arguments": dict(self.arguments)}


def tool(name: str, description: str, required: bool = True, **parameters: str) -> Tool:
    """Return a tool with parameters of JSON types: `tool("open", "Opens.", page="integer")`."""
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required else [],
    }
    return Tool(name=name, description=description, parameters=schema)


def find_tool(name: str, tools: Sequence[Tool]) -> Tool:
    """Return the tool of that name; raises Malformed naming the nearest one."""
    for known in tools:
        if known.name == name:
            return known
    names = [known.name for known in tools]
    raise Malformed(
        f"there is no action '{name:.60}'; known: {', '.join(names)}{did_you_mean(name, names)}"
    )


def from_words(text: str, tools: Sequence[Tool]) -> Action:
    """Return the action of `open 2`: a tool's name, then the value of its first parameter."""
    name, _, rest = text.strip().partition(" ")
    found = find_tool(name, tools)
    properties = dict(found.parameters.get("properties", {}))
    rest = rest.strip()
    if not properties:
        if rest:
            raise Malformed(f"'{found.name}' takes nothing; found '{rest:.60}'")
        return Action(name=found.name)
    parameter = next(iter(properties))
    if not rest:
        if parameter in found.parameters.get("required", ()):
            raise Malformed(f"'{found.name}' needs {parameter}; write: {found.name} {parameter}")
        return Action(name=found.name)
    return Action(name=found.name, arguments={parameter: _typed(rest, properties[parameter])})


def in_words(action: Action, tools: Sequence[Tool]) -> str:
    """Return `open 2`, or the call as JSON where those words would be read as another call.

    They would be where the value is not that of the first parameter, or is no text of its type.
    """
    text = action.short()
    try:
        same = text.startswith("{") or from_words(text, tools).call() == action.call()
    except Malformed:
        same = False
    return text if same else json.dumps(action.call(), ensure_ascii=False)


def _typed(text: str, schema: Mapping[str, Any]) -> Any:
    """Read a word as the type that the schema names, or leave it a text for `check` to refuse."""
    kind = schema.get("type")
    try:
        if kind == "integer":
            return int(text)
        if kind == "number":
            return float(text)
        if kind in ("boolean", "array", "object"):
            return json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text


def from_call(value: Any) -> Action:
    """Return the action of a JSON call; raises Malformed. Arguments may be a JSON text."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise Malformed('expected {"name": "...", "arguments": {...}}')
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            raise Malformed('"arguments" is a text that is not JSON; expected an object') from None
    if not isinstance(arguments, dict):
        raise Malformed(f'"arguments" is {type(arguments).__name__}; expected an object')
    return Action(name=value["name"], arguments=arguments)


def check(action: Action, tools: Sequence[Tool]) -> None:
    """Raise Malformed unless the call names a tool and its arguments fit the tool's schema."""
    from jsonschema import Draft202012Validator

    found = find_tool(action.name, tools)
    properties = found.parameters.get("properties", {})
    for name in action.arguments:
        if name not in properties:
            near = did_you_mean(name, properties)
            known = ", ".join(properties) or "none"
            raise Malformed(f"'{found.name}' has no parameter '{name:.60}'; known: {known}{near}")
    errors = Draft202012Validator(dict(found.parameters)).iter_errors(dict(action.arguments))
    for error in errors:
        place = ".".join(map(str, error.absolute_path)) or "arguments"
        raise Malformed(f"'{found.name}': {place}: {error.message:.160}")
