"""Reading programs of a policy in the trusted process: parsed, within bounds, and never run."""

from __future__ import annotations

import ast
import warnings

MOST_CHARACTERS = 20_000
"""Longer programs are not parsed: the parser's time and memory grow with the text."""


def parsed(source: str) -> ast.Module | None:
    """The syntax tree, or None for text that is no Python or too large.

    A tree that is nested too deeply is refused by Python itself, before any stack is exhausted.
    """
    if len(source) > MOST_CHARACTERS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as invalid escapes: the program's, not ours
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
