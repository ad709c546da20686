"""Messages between an environment of verifiers and a policy that reads and writes text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from selfdistill_cli.core.texts import readable
from selfdistill_cli.core.types import Message
from selfdistill_cli.envs.agents.actions import Tool
from selfdistill_cli.envs.agents.formats import FORMATS, between, without_thought


def told(message: Any) -> Message:
    """Return a message as chat templates take it; raises ValueError for one that is no text.

    What a tool returned is a user's message between the tags that Qwen's template writes.
    """
    content = text_of(message["content"])
    if message["role"] == "tool":
        return Message(role="user", content=f"<tool_response>\n{content}\n</tool_response>")
    return Message(role=message["role"], content=content)


def text_of(content: Any) -> str:
    """Return the text of a message's content, which may come in parts; raises ValueError."""
    if content is None or isinstance(content, str):
        return readable(content or "")
    parts: list[str] = []
    for part in content:
        own = part.get("text") if isinstance(part, Mapping) else None
        text = getattr(part, "text", own)
        if not isinstance(text, str):
            raise ValueError(f"a message holds a part that is no text: {part!s:.80}")
        parts.append(text)
    return readable("".join(parts))


def with_tools(messages: Sequence[Message], tools: Sequence[Any]) -> tuple[Message, ...]:
    """Return the messages with the tools explained in the system message, as Qwen's template."""
    if not tools:
        return tuple(messages)
    known = [
        Tool(name=t["name"], description=t["description"], parameters=t["parameters"])
        for t in tools
    ]
    explained = FORMATS["native"].instructions(known)
    if messages and messages[0]["role"] == "system":
        first = Message(role="system", content=f"{messages[0]['content']}\n\n{explained}")
        return (first, *messages[1:])
    return (Message(role="system", content=explained), *messages)


def calls_in(text: str) -> tuple[str, list[dict[str, str]]]:
    """Return what a reply says and the calls in it: id, name, arguments as JSON.

    What stands in thoughts is no call. A call that is no JSON has no name and keeps its text as
    arguments: the environment tells what is wrong with them, in its own words.
    """
    rest = without_thought(text)[1]
    found = between(rest, "tool_call")
    if not found:
        return text, []
    calls: list[dict[str, str]] = []
    for number, (_, inner) in enumerate(found):
        name, arguments = "", inner.strip()
        try:
            call = json.loads(inner)
            name, arguments = str(call["name"]), json.dumps(call.get("arguments", {}))
        except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
            pass
        calls.append({"id": f"call_{number}", "name": name, "arguments": arguments})
    return text[: text.find("<tool_call>")], calls
