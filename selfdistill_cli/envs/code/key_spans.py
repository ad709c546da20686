"""Key tokens of a program: names of its functions, starts of its loops, and returns."""

from __future__ import annotations

import ast
import re
import unicodedata
from collections.abc import Iterator

from selfdistill_cli.envs.code.programs import extract_program

Span = tuple[int, int]
LONGEST = 64 * 1024
"""Characters of an answer that is looked at."""
NAME = re.compile(r"(?:async[\s\\]+)?def[\s\\]+([^\s(\\]+)")
FOR = re.compile(r"#[^\r\n]*|\bfor\b")
KEYWORDS: dict[type[ast.AST], str] = {
    ast.For: "for",
    ast.While: "while",
    ast.AsyncFor: "async",
    ast.Return: "return",
}


def key_spans(answer: str, prefix: str) -> list[Span]:
    """Return spans [start, end) of the answer, in characters; empty if it is not Python or huge.

    Keyed are the name in every `def`, and the words `for`, `while` and `return`; also the `for` of
    comprehensions. `prefix` is the code that the prompt began with, which an answer may continue.
    """
    if len(answer) > LONGEST:
        return []
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
            found = NAME.match(source, lines.offset(node.lineno, node.col_offset))
            # The syntax tree has names in the form NFKC, the source need not.
            if found is not None and unicodedata.normalize("NFKC", found.group(1)) == node.name:
                yield found.span(1)
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            yield from _fors(node, source, lines)


def _fors(
    node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, source: str, lines: _Lines
) -> Iterator[Span]:
    """Yield every `for` of a comprehension: between what stands before it and its target."""
    before: ast.expr = node.value if isinstance(node, ast.DictComp) else node.elt
    for part in node.generators:
        start = lines.offset(before.end_lineno or 0, before.end_col_offset or 0)
        end = lines.offset(part.target.lineno, part.target.col_offset)
        words = (found for found in FOR.finditer(source, start, end) if found.group() == "for")
        yield from (found.span() for found in words)
        before = part.ifs[-1] if part.ifs else part.iter


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
