"""Programs with one part changed: what tests that are worth something must notice."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE,
    ast.LtE: ast.Gt, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult,
}  # fmt: skip


def mutants(program: str, entry_point: str) -> Iterator[str]:
    """Yield programs that differ from `program` in one place of the function."""
    tree = ast.parse(program)
    function = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == entry_point]
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and isinstance(node.body[0], ast.Expr)
    }
    nodes = [node for node in ast.walk(function[-1]) if id(node) not in docstrings]
    for node in nodes:
        before = copy.copy(node.__dict__)
        if change(node):
            yield ast.unparse(tree)
        node.__dict__.clear()
        node.__dict__.update(before)


def change(node: ast.AST) -> bool:
    """Change one node in place; whether there was something to change."""
    if isinstance(node, ast.Compare):
        node.ops = [COMPARISONS[type(node.ops[0])](), *node.ops[1:]]
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        node.op = OPERATORS[type(node.op)]()
    elif isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, ast.Constant):
        node.value = changed(node.value)
    elif isinstance(node, ast.Return) and node.value is not None:
        node.value = ast.List(elts=[node.value], ctx=ast.Load())
    else:
        return False
    return True


def changed(value: object) -> object:
    """Return a constant that is not this one."""
    if isinstance(value, bool) or value is None:
        return not value
    return value + 1 if isinstance(value, int | float) else f"{value}x"
