"""A user's own tools: a JSON file of schemas, whose calls are compared."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from selfdistill_cli.core.errors import DataError
from selfdistill_cli.core.texts import decoded
from selfdistill_cli.envs.agents.actions import Tool
from selfdistill_cli.envs.files import file_or_error
from selfdistill_cli.envs.tools.toolbox import DONE

FORM = (
    '{"name": "...", "description": "...", "parameters": {"type": "object", "properties": {...}}}'
)


def read_tools(path: str) -> list[Tool]:
    """Return the tools of a JSON file; raises DataError.

    The file is a list of schemas, or an object with such a list under `tools`; the form of chat
    interfaces, `{"type": "function", "function": {...}}`, is read too.
    """
    place = file_or_error(path, "env.tools", f"a JSON file: a list of {FORM}")
    try:
        value = json.loads(decoded(place.read_bytes(), f"env.tools={path}", path))
    except OSError as error:
        raise DataError(f"env.tools={path}: cannot be read: {error}") from None
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(
            f"env.tools={path}: not JSON ({error}); expected a list of {FORM}"
        ) from None
    if isinstance(value, dict):
        value = value.get("tools")
    if not isinstance(value, list) or not value:
        raise DataError(f"env.tools={path}: found no list of tools; expected a list of {FORM}")
    tools = [tool_from(item, f"env.tools={path}, tool {i}") for i, item in enumerate(value, 1)]
    names = [tool.name for tool in tools]
    for name in names:
        if names.count(name) > 1 or name == DONE.name:
            why = "is there twice" if name != DONE.name else "is the built-in way to end"
            raise DataError(f"env.tools={path}: the name '{name}' {why}; rename the tool")
    return tools


def tool_from(item: Any, where: str) -> Tool:
    """Return the tool of a schema; raises DataError beginning with `where`."""
    if isinstance(item, Mapping) and isinstance(item.get("function"), Mapping):
        item = item["function"]
    if not isinstance(item, Mapping) or not isinstance(item.get("name"), str) or not item["name"]:
        raise DataError(f"{where}: found {item!r:.60}; expected {FORM}")
    parameters = item.get("parameters", {"type": "object", "properties": {}})
    where = f"{where} ('{item['name']}')"
    if not isinstance(parameters, Mapping) or not isinstance(parameters.get("properties"), Mapping):
        raise DataError(
            f'{where}: found parameters {parameters!r:.60}; expected {{"type": "object", '
            '"properties": {...}, "required": [...]}'
        )
    description = item.get("description", "")
    if not isinstance(description, str):
        raise DataError(f"{where}: found a description {description!r:.60}; expected a text")
    _check_schema(parameters, where)
    plain = {n: {} if s is True else s for n, s in parameters["properties"].items()}
    for name, schema in plain.items():
        if not isinstance(schema, Mapping):
            raise DataError(
                f"{where}: found the schema {schema!r} of '{name}'; expected an object; leave out "
                "a parameter that takes no value"
            )
    parameters = {**parameters, "properties": plain}
    return Tool(name=item["name"], description=description, parameters=dict(parameters))


def _check_schema(parameters: Mapping[str, Any], where: str) -> None:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(dict(parameters))
    except SchemaError as error:
        place = ".".join(map(str, error.absolute_path)) or "parameters"
        raise DataError(f"{where}: {place} is no JSON schema: {error.message:.120}") from None
    for reference in _references(parameters):
        if not _resolves(reference, parameters):
            raise DataError(
                f"{where}: $ref {reference!r:.60} leads nowhere; expected one within this tool's "
                "parameters, such as #/$defs/NAME"
            )
    unknown = set(parameters.get("required", ())) - set(parameters["properties"])
    if unknown:
        raise DataError(f"{where}: required names {sorted(unknown)}, which are not in properties")


def _references(schema: Any) -> Iterator[Any]:
    """Yield every `$ref` in a schema."""
    if isinstance(schema, Mapping):
        for name, inner in schema.items():
            yield from [inner] if name == "$ref" else _references(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _references(inner)


def _resolves(reference: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a reference leads to a place in the schema."""
    if not isinstance(reference, str) or not (reference + "/").startswith("#/"):
        return False
    node: Any = schema
    for part in reference.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, Mapping) or name not in node:
            return False
        node = node[name]
    return True
