"""From an answer's text to the program that is run."""

from __future__ import annotations

import ast
import functools
import io
import re

FENCE = "```"
LANGUAGE = re.compile(r"\w*")
LANGUAGES = ("python", "py", "python3")
# What sites with `class Solution` have imported already, on one line; answers count on it.
GIVEN = (
    "import bisect, collections, functools, heapq, itertools, math, operator, random, re, string; "
    "from typing import *; from collections import *; from functools import *; "
    "from itertools import *; from bisect import *; from heapq import *; from math import inf\n"
)


def extract_program(text: str) -> str:
    """Return the last fenced block marked as Python, else the last block, else the whole text."""
    blocks = _blocks(text)
    python = [body for language, body in blocks if language.lower() in LANGUAGES]
    if python:
        return python[-1]
    return blocks[-1][1] if blocks else text


def _blocks(text: str) -> list[tuple[str, str]]:
    """Return language and body of every fenced block; the last one may lack its end.

    Line by line, because a regular expression takes quadratic time for hostile fences.
    """
    blocks: list[tuple[str, str]] = []
    language: str = ""
    body: list[str] | None = None
    for line in io.StringIO(text, newline="\n"):
        stripped = line.lstrip(" \t")
        if not stripped.startswith(FENCE):
            if body is not None:
                body.append(line)
        elif body is not None:
            blocks.append((language, "".join(body)))
            body = None
        elif line.endswith("\n"):
            named = LANGUAGE.match(stripped[len(FENCE) :].lstrip(" \t"))
            language, body = named.group() if named else "", []
    if body is not None:
        blocks.append((language, "".join(body)))
    return blocks


def complete_program(program: str, entry_point: str, prefix: str) -> str:
    """Return the program as it is run, given the code that its prompt began with, if any.

    HumanEval's prompt is the beginning of a program: imports, helpers, and a function that has
    only a docstring. An answer may continue it or repeat the function; a repeated one replaces
    the first and still finds the imports and helpers.
    """
    if not prefix:
        return program
    if not re.search(rf"^(def|class)\s+{re.escape(entry_point)}\b", program, re.MULTILINE):
        return prefix + program
    return f"{prefix}\n\n{program}" if stands_alone(prefix) else program


def with_method(program: str, owner: str, name: str) -> str:
    """Return the program with a function `name` that calls a new `owner`'s method, if it has one.

    A function of that name on the top level stays. Modules that answers to such tasks take for
    imported are.
    """
    if re.search(rf"^def\s+{re.escape(name)}\b", program, re.MULTILINE) is None and re.search(
        rf"^class\s+{re.escape(owner)}\b", program, re.MULTILINE
    ):
        call = f"return {owner}().{name}(*arguments)"
        program = f"{program}\n\n\ndef {name}(*arguments):\n    {call}\n"
    # An import from __future__ has to stay the first statement.
    return program if "from __future__" in program else GIVEN + program


@functools.lru_cache(maxsize=4096)
def stands_alone(source: str) -> bool:
    """Return whether the source is Python without syntax errors."""
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
