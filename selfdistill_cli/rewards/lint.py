"""A small linter: what is in a syntax tree and is almost always a slip. Nothing is run."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from selfdistill_cli.core.types import Trajectory
from selfdistill_cli.rewards.outcomes import MASKED, each, program_of
from selfdistill_cli.rewards.settings import LintComponent
from selfdistill_cli.rewards.source import parsed

LEAVES = (ast.Return, ast.Raise, ast.Break, ast.Continue)
SINGLETONS = (None, True, False)
MUTABLE = (ast.List, ast.Dict, ast.Set)


class Lint:
    """1 minus the share of findings; a program that does not parse has the value 0."""

    def __init__(self, settings: LintComponent) -> None:
        """Keep the settings."""
        self._settings = settings

    def values(self, trajectories: Sequence[Trajectory]) -> list[Any]:
        """One value in [0, 1] per trajectory; masked without an answer."""
        return each(self._value, trajectories)

    def _value(self, trajectory: Trajectory) -> Any:
        program = program_of(trajectory)
        if not program and not trajectory.turns:
            return MASKED
        tree = parsed(program)
        if tree is None:
            return 0.0
        return max(0.0, 1 - len(findings(tree)) / self._settings.most_findings)


def findings(tree: ast.Module) -> list[str]:
    """Messages, in the order of the tree: unused names, unreachable code, and other slips."""
    found = [message for node in ast.walk(tree) for message in _of_node(node)]
    return found + _unused_locals(tree) + _unused_imports(tree)


def _of_node(node: ast.AST) -> Iterator[str]:
    for block in ("body", "orelse", "finalbody"):
        statements = getattr(node, block, None)
        if isinstance(statements, list):
            yield from _unreachable(statements)
    if isinstance(node, ast.ExceptHandler) and node.type is None:
        yield f"line {node.lineno}: except without a class"
    if isinstance(node, ast.Compare):
        yield from _comparison(node)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        defaults = [*node.args.defaults, *node.args.kw_defaults]
        if any(isinstance(default, MUTABLE) for default in defaults):
            yield f"line {node.lineno}: a default that all calls share"
    if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
        yield f"line {node.lineno}: import *"


def _unreachable(statements: list[ast.stmt]) -> Iterator[str]:
    for before, after in itertools.pairwise(statements):
        if isinstance(before, LEAVES):
            yield f"line {after.lineno}: never reached"


def _comparison(node: ast.Compare) -> Iterator[str]:
    for operator, right in zip(node.ops, node.comparators, strict=True):
        single = isinstance(right, ast.Constant) and any(right.value is x for x in SINGLETONS)
        if single and isinstance(operator, ast.Eq | ast.NotEq):
            yield f"line {node.lineno}: compared with None, True or False by equality"


def _unused_locals(tree: ast.Module) -> list[str]:
    """Names that an outermost function assigns alone in a statement and reads nowhere."""
    found: list[str] = []
    inside: set[ast.AST] = set()
    for function in ast.walk(tree):  # breadth first: an outer function comes before its inner ones
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function not in inside:
            nodes = list(ast.walk(function))
            inside.update(nodes)
            found += _unread(nodes)
    return found


def _unread(nodes: Sequence[ast.AST]) -> Iterator[str]:
    names = [node for node in nodes if isinstance(node, ast.Name)]
    known = {name.id for name in names if not isinstance(name.ctx, ast.Store)}
    for node in nodes:
        if isinstance(node, ast.Global | ast.Nonlocal):
            known.update(node.names)
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name) and target.id not in known:
                yield f"line {node.lineno}: {target.id} is never read"


def _unused_imports(tree: ast.Module) -> list[str]:
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound = [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
            unused = [name for name in bound if name not in used and name != "*"]
            found += [f"line {node.lineno}: {name} is imported and never used" for name in unused]
    return found
