"""Tests that compare the candidate with the function of its own name (HumanEval/33)."""

from __future__ import annotations

import ast

NAME = "reference_solution"


def means_the_reference(test: str, entry_point: str, answer: str | None) -> tuple[str, str]:
    """Return the test code, changed where it has to be, and the set-up that it then needs.

    `assert candidate(x) == f(x)`, where f is the entry point, compares the candidate with itself
    and proves nothing. In a statement with both names, f then means the reference, if there is
    one. A statement with f alone calls the candidate, as in asserts outside of `check`.
    """
    if answer is None:
        return test, ""
    places = [
        (name.lineno, name.col_offset)
        for statement in ast.walk(ast.parse(test))
        if isinstance(statement, ast.Assert | ast.Expr | ast.Assign)
        for name in _compared(statement, entry_point)
    ]
    if not places:
        return test, ""
    lines = [line.encode() for line in test.splitlines(keepends=True)]
    for number, column in sorted(set(places), reverse=True):
        line = lines[number - 1]
        end = column + len(entry_point.encode())
        lines[number - 1] = line[:column] + NAME.encode() + line[end:]
    setup = f"{answer}\n\n{NAME} = {entry_point}\n\n"
    return b"".join(lines).decode(), setup


def _compared(statement: ast.stmt, entry_point: str) -> list[ast.Name]:
    names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
    both = {"candidate", entry_point} <= {name.id for name in names}
    return [name for name in names if name.id == entry_point] if both else []
