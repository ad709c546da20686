"""Privileged prompts of a teacher: what is added or taken away, and where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from selfdistill_cli.core.texts import readable
from selfdistill_cli.core.types import Message

HintKind = Literal[
    "answer",
    "feedback",
    "sibling",
    "evidence",
    "own_wrong_answer",
    "skill",
    "meta_skill",
    "pruned",
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
    """One piece of privileged text, or a prompt with less guidance than the task's own."""

    kind: HintKind
    """Where the text comes from."""
    text: str
    """The text itself, as the environment wrote it; empty if the hint only replaces the prompt."""
    messages: tuple[Message, ...] | None = None
    """What the prompt starts from instead of the task's messages, or None."""


def text_hint(kind: HintKind, text: str | None) -> Hint | None:
    """A hint with this text, made harmless; None where there is no text."""
    harmless = readable(text or "").strip()
    return Hint(kind=kind, text=harmless) if harmless else None


def with_hints(messages: Sequence[Message], hints: Sequence[Hint]) -> tuple[Message, ...]:
    """Append hints to the last user message, so that only the prompt before the answer changes.

    A hint with messages of its own replaces the prompt first (of several, the last one does),
    wherever it stands in the sequence.
    """
    replacements = [hint.messages for hint in hints if hint.messages is not None]
    out = list(replacements[-1] if replacements else messages)
    blocks = "".join(f"\n{TITLES[hint.kind]}\n{hint.text}" for hint in hints if hint.text)
    if blocks:
        last = max(i for i, m in enumerate(out) if m["role"] == "user")
        out[last] = Message(role="user", content=out[last]["content"] + blocks)
    return tuple(out)
