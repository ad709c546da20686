"""Calls and what became of them, as short text for people. Values are a hostile program's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from selfdistill_cli.core.texts import readable
from selfdistill_cli.sandbox.inside import wire
from selfdistill_cli.sandbox.jobs import CallResult

ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")
MAX_PARTS = 2000
"""A value of more parts than this is not shown: of its text next to nothing would be left."""


def clean(message: Any) -> str:
    """Return text of a hostile message: short, printable, and the same from run to run."""
    text = message if type(message) is str else ""
    return ADDRESS.sub("0x", readable(text))[: wire.MAX_MESSAGE]


def show_call(name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> str:
    """Return `f(1, b='a')` for a call with encoded arguments, cut short."""
    shown = [show_encoded(argument) for argument in arguments]
    shown += [f"{key}={show_encoded(argument)}" for key, argument in named.items()]
    return f"{name}({shorten(', '.join(shown))})"


def show_encoded(data: Any) -> str:
    """Return `repr` of an encoded value, `...` for one that is large."""
    if is_large(data):
        return "..."
    try:
        return show(wire.decode(data))
    except ValueError:
        return "..."


def is_large(data: Any) -> bool:
    """Return whether JSON data has more than `MAX_PARTS` parts; does not look at the rest."""
    todo, count = [data], 0
    while todo:
        part = todo.pop()
        if type(part) is list:
            count += len(part)
            if count > MAX_PARTS:
                return True
            todo.extend(part)
    return False


def show_result(result: CallResult) -> str:
    """Return `returned 3`, `raised ValueError: x` and the like, cut short."""
    if result.status == "returned":
        return f"returned {shorten(show(result.value))}"
    if result.status == "raised":
        return f"raised {shorten(result.message)}"
    return result.message


def show(value: Any) -> str:
    """Return `repr` of a decoded value; an integer may have more digits than Python prints."""
    try:
        return repr(value)
    except ValueError:
        return "a number with thousands of digits"


def shorten(text: str, limit: int = 120) -> str:
    """Return the text, with an ellipsis in its middle if it is longer than `limit`."""
    half = (limit - 3) // 2
    return text if len(text) <= limit else f"{text[:half]}...{text[-half:]}"
