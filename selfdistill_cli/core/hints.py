"""Privileged text for a teacher's prompt: what it is called and where it stands in the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from selfdistill_cli.core.types import Message

HintKind = Literal[
    "answer", "feedback", "sibling", "evidence", "own_wrong_answer", "skill", "meta_skill"
]
HINT_KINDS: tuple[str, ...] = get_args(HintKind)

TITLES: dict[str, str] = {
    "answer": "Answer:",
    "feedback": "Feedback:",
    "sibling": "A correct solution:",
    "evidence": "Evidence:",
    "own_wrong_answer": "Wrong, do not repeat:",
    "skill": "Skill:",
    "meta_skill": "How to use the skills:",
}


@dataclass(frozen=True, kw_only=True)
class Hint:
    """One piece of privileged text."""

    kind: HintKind
    """Where the text comes from."""
    text: str
    """The text itself, as the environment wrote it."""


def with_hints(messages: Sequence[Message], hints: Sequence[Hint]) -> tuple[Message, ...]:
    """Append hints to the last user message, so that only the prompt before the answer changes."""
    if not hints:
        return tuple(messages)
    last = max(i for i, m in enumerate(messages) if m["role"] == "user")
    blocks = "".join(f"\n{TITLES[hint.kind]}\n{hint.text}" for hint in hints)
    out = list(messages)
    out[last] = Message(role="user", content=messages[last]["content"] + blocks)
    return tuple(out)
