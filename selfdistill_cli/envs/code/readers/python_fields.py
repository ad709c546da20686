"""Fields that hold Python."""

from __future__ import annotations

import ast

from selfdistill_cli.envs.json_lines import Line


def parse(line: Line, name: str, source: str) -> ast.Module:
    """Return the syntax tree of a field that must be Python; raises DataError."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise line.error(name, f"{error}", "Python code without syntax errors") from None
