"""How an agent writes its actions. A text that is no action is told so, and never crashes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol

from selfdistill_cli.envs.agents.actions import (
    Action,
    Malformed,
    Tool,
    from_call,
    from_words,
    in_words,
)

FormatName = Literal["tags", "json", "native", "choices", "words"]
THINK = re.compile(r"<think>(.*?)(?:</think>|\Z)", re.DOTALL)
FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL)
NUMBER = re.compile(r"\s*\(?(\d{1,6})[).:]?\s*\Z")


class ActionFormat(Protocol):
    """One way of writing actions. `render` is the inverse of `parse`."""

    def instructions(self, tools: Sequence[Tool]) -> str:
        """What the agent is told about tools and format."""
        ...

    def parse(self, text: str, tools: Sequence[Tool], choices: Sequence[Action]) -> Action:
        """Return the action of a turn's text; raises Malformed."""
        ...

    def render(self, action: Action, choices: Sequence[Action], tools: Sequence[Tool]) -> str:
        """Return the text of an action, as an expert writes it."""
        ...

    def show(self, choices: Sequence[Action], tools: Sequence[Tool]) -> str:
        """What an observation says about the admissible actions; empty for nothing."""
        ...


def without_thought(text: str) -> tuple[str, str]:
    """Return what stands between think tags, and the text without it."""
    found = THINK.search(text)
    return ("", text) if found is None else (found.group(1).strip(), THINK.sub("", text))


def between(text: str, tag: str) -> list[tuple[int, str]]:
    """Return where each `<tag>` stands and what stands between it and its end; linear time."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    found: list[tuple[int, str]] = []
    start = text.find(opening)
    while start >= 0:
        end = text.find(closing, start + len(opening))
        if end < 0:
            break
        found.append((start, text[start + len(opening) : end]))
        start = text.find(opening, end)
    return found


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not JSON: {error!s:.80}") from None


def _schemas(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    return [
        {"name": t.name, "description": t.description, "parameters": dict(t.parameters)}
        for t in tools
    ]


def _usage(tools: Sequence[Tool]) -> str:
    """Return one line per tool: `open page: Opens a page.`"""
    lines: list[str] = []
    for known in tools:
        parameters = " ".join(known.parameters.get("properties", {}))
        lines.append(f"{known.name} {parameters}".strip() + f": {known.description}")
    return "\n".join(lines)


class Tags:
    """`<think>why</think><action>open 2</action>`, or a JSON call between the action tags."""

    def instructions(self, tools: Sequence[Tool]) -> str:
        """Return the tools, one a line, and how to call them."""
        return (
            f"Actions:\n{_usage(tools)}\n"
            "Reply with <think>your reasoning</think><action>name value</action>. An action with "
            'several values is JSON: <action>{"name": "...", "arguments": {...}}</action>.'
        )

    def parse(self, text: str, tools: Sequence[Tool], choices: Sequence[Action]) -> Action:
        """Return the last tagged action; raises Malformed."""
        thought, rest = without_thought(text)
        found = between(rest, "action")
        if not found:
            raise Malformed("no <action>...</action> in the reply")
        inner = found[-1][1].strip()
        action = from_call(_json(inner)) if inner.startswith("{") else from_words(inner, tools)
        return replace(action, thought=thought)

    def render(self, action: Action, choices: Sequence[Action], tools: Sequence[Tool]) -> str:
        """Return the action between tags, with its thought if there is one."""
        thought = f"<think>{action.thought}</think>" if action.thought else ""
        return f"{thought}<action>{in_words(action, tools)}</action>"

    def show(self, choices: Sequence[Action], tools: Sequence[Tool]) -> str:
        """Return the admissible actions as they are written."""
        return "\n".join(in_words(action, tools) for action in choices)


class Json:
    """`{"name": "open", "arguments": {"page": 2}}`, alone or in a fenced block."""

    def instructions(self, tools: Sequence[Tool]) -> str:
        """Return the tools' schemas and how to call them."""
        schemas = "\n".join(json.dumps(schema, ensure_ascii=False) for schema in _schemas(tools))
        how = 'Reply with one JSON call: {"name": "...", "arguments": {...}}'
        return f"Tools:\n{schemas}\n{how}"

    def parse(self, text: str, tools: Sequence[Tool], choices: Sequence[Action]) -> Action:
        """Return the call that the reply ends with; raises Malformed."""
        thought, rest = without_thought(text)
        fenced = FENCED.findall(rest)
        body = fenced[-1] if fenced else rest[max(0, rest.find("{")) :]
        if "{" not in body:
            raise Malformed("no JSON object in the reply")
        if not thought and not fenced:
            thought = rest[: rest.find("{")].strip()
        return replace(from_call(_json(body.strip())), thought=thought)

    def render(self, action: Action, choices: Sequence[Action], tools: Sequence[Tool]) -> str:
        """Return the call as JSON, after its thought if there is one."""
        call = json.dumps(action.call(), ensure_ascii=False)
        return f"<think>{action.thought}</think>{call}" if action.thought else call

    def show(self, choices: Sequence[Action], tools: Sequence[Tool]) -> str:
        """Return the admissible calls, one a line."""
        return "\n".join(json.dumps(action.call(), ensure_ascii=False) for action in choices)


class Native:
    """Calls between `<tool_call>` tags, which Hermes and Qwen chat templates write."""

    def instructions(self, tools: Sequence[Tool]) -> str:
        """Return the text that Qwen's template writes for tools."""
        schemas = [
            json.dumps({"type": "function", "function": schema}, ensure_ascii=False)
            for schema in _schemas(tools)
        ]
        return (
            "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
            "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
            + "\n".join(schemas)
            + "\n</tools>\n\nFor each function call, return a json object with function name and "
            "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"
            '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
        )

    def parse(self, text: str, tools: Sequence[Tool], choices: Sequence[Action]) -> Action:
        """Return the first call; raises Malformed."""
        thought, rest = without_thought(text)
        found = between(rest, "tool_call")
        if not found:
            raise Malformed("no <tool_call>...</tool_call> in the reply")
        start, call = found[0]
        thought = thought or rest[:start].strip()
        return replace(from_call(_json(call.strip())), thought=thought)

    def render(self, action: Action, choices: Sequence[Action], tools: Sequence[Tool]) -> str:
        """Return the call between its tags, after its thought if there is one."""
        call = json.dumps(action.call(), ensure_ascii=False)
        thought = f"<think>{action.thought}</think>\n" if action.thought else ""
        return f"{thought}<tool_call>\n{call}\n</tool_call>"

    def show(self, choices: Sequence[Action], tools: Sequence[Tool]) -> str:
        """Return the admissible calls, one a line."""
        return Json().show(choices, tools)


class Choices:
    """The number of one of the admissible actions, which every observation lists."""

    def instructions(self, tools: Sequence[Tool]) -> str:
        """Say it in one line."""
        return "Reply with the number of an action."

    def parse(self, text: str, tools: Sequence[Tool], choices: Sequence[Action]) -> Action:
        """Return the chosen action; raises Malformed."""
        thought, rest = without_thought(text)
        found = NUMBER.match(rest)
        if found is None:
            raise Malformed(f"expected a number from 1 to {len(choices)}")
        number = int(found.group(1))
        if not 1 <= number <= len(choices):
            raise Malformed(f"there is no action {number}; expected 1 to {len(choices)}")
        return replace(choices[number - 1], thought=thought)

    def render(self, action: Action, choices: Sequence[Action], tools: Sequence[Tool]) -> str:
        """Return the number of the action, after its thought if there is one."""
        calls = [choice.call() for choice in choices]
        number = str(calls.index(action.call()) + 1)
        return f"<think>{action.thought}</think>{number}" if action.thought else number

    def show(self, choices: Sequence[Action], tools: Sequence[Tool]) -> str:
        """Return the numbered list."""
        return "\n".join(f"{i} {action.short()}" for i, action in enumerate(choices, start=1))


class Words:
    """The first words of one of the listed actions, as many as tell it from the others."""

    def instructions(self, tools: Sequence[Tool]) -> str:
        """Say it in one line."""
        return "Reply with an action, or as many of its first words as tell it from the others."

    def parse(self, text: str, tools: Sequence[Tool], choices: Sequence[Action]) -> Action:
        """Return the action that starts so; raises Malformed if there is none or several."""
        thought, rest = without_thought(text)
        words = rest.split()
        exact = [action for action in choices if action.short().split() == words]
        found = exact[:1] or [action for action in choices if _starts(action, words)]
        if not words or not found:
            raise Malformed("no listed action starts with that")
        if len(found) > 1:
            raise Malformed(f"{len(found)} listed actions start with that; write more words")
        return replace(found[0], thought=thought)

    def render(self, action: Action, choices: Sequence[Action], tools: Sequence[Tool]) -> str:
        """Return the fewest words that `parse` understands, after the thought if there is one."""
        words = action.short().split()
        others = [other for other in choices if other.call() != action.call()]
        for count in range(1, len(words)):
            if not any(_starts(other, words[:count]) for other in others):
                words = words[:count]
                break
        text = " ".join(words)
        return f"<think>{action.thought}</think>{text}" if action.thought else text

    def show(self, choices: Sequence[Action], tools: Sequence[Tool]) -> str:
        """Return the admissible actions, one a line."""
        return "\n".join(action.short() for action in choices)


def _starts(action: Action, words: Sequence[str]) -> bool:
    return action.short().split()[: len(words)] == list(words)


FORMATS: dict[FormatName, ActionFormat] = {
    "tags": Tags(),
    "json": Json(),
    "native": Native(),
    "choices": Choices(),
    "words": Words(),
}
