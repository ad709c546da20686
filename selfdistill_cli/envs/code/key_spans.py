"""Key tokens of a program: names of its functions, starts of its loops, and returns."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from selfdistill_cli.envs.code.programs import extract_program

Span = tuple[int, int]
NAME = re.compile(r"\bdef[\s\\]+(\w+)")
KEYWORDS: dict[type[ast.AST], str] = {
    ast.For: "for",
    ast.While: "while",
    ast.AsyncFor: "async",
    ast.Return: "return",
}


def key_spans(answer: str, prefix: str) -> list[Span]:
    """Return spans [start, end) of the answer, in characters; empty if it is not Python.

    Keyed are the name in every `def`, and the words `for`, `while` and `return`; also the `for` of
    comprehensions. `prefix` is the code that the prompt began with, which an answer may continue.
    """
    program = extract_program(answer)
    start = answer.rfind(program)
    for before in ("", prefix) if prefix else ("",):
        tree = _parsed(before + program)
        if tree is not None:
            spans = _spans(tree, before + program)
            moved = ((a - len(before) + start, b - len(before) + start) for a, b in spans)
            return sorted(span for span in moved if span[0] >= start)
    return []


def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _spans(tree: ast.Module, source: str) -> Iterator[Span]:
    lines = _Lines(source)
    for node in ast.walk(tree):
        word = KEYWORDS.get(type(node))
        if word is not None:
            place = lines.offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]
            yield place, place + len(word)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found = NAME.search(source, lines.offset(node.lineno, node.col_offset))
            if found is not None:
                yield found.span(1)
        elif isinstance(node, ast.comprehension):
            end = lines.offset(node.target.lineno, node.target.col_offset)
            place = source.rfind("for", 0, end)
            yield place, place + 3


class _Lines:
    """Turns the syntax tree's lines and UTF-8 columns into characters of the source."""

    def __init__(self, source: str) -> None:
        # Python ends lines here, and not at all the characters that str.splitlines knows.
        self._lines = re.split(r"(?<=\n)|(?<=\r)(?!\n)", source)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def offset(self, line: int, column: int) -> int:
        """Return the character at a line, counted from 1, and a byte column."""
        before = self._lines[line - 1].encode()[:column].decode(errors="ignore")
        return self._starts[line - 1] + len(before)
