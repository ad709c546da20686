"""What every reader returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """A task without its id and its split."""

    prompt: str
    """What the agent is told."""
    answer: str | None
    """A program that passes the tests, complete, or None."""
    meta: dict[str, Any]
    """entry_point, prefix and one kind of tests: `setup` and `tests` (code), `calls` and
    `expected` (which the reference makes if it is missing), or `stdin` and `stdout`."""
