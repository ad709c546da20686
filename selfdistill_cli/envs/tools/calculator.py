"""Arithmetic on numbers alone: the text is parsed and walked, never evaluated as a program."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable

LONGEST, LARGEST, LARGEST_EXPONENT = 200, 1e15, 64
OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class ToolError(Exception):
    """A call that fits its schema and cannot be done; the message is for the agent."""


def tidy(value: float, digits: int = 6) -> int | float:
    """Return the value rounded, as a whole number where it is one; raises ToolError if too large.

    Rounding hides the last bits, in which equal ways of computing differ.
    """
    if not math.isfinite(value) or abs(value) > LARGEST:
        raise ToolError(f"the result is no number from {-LARGEST:g} to {LARGEST:g}")
    rounded = round(value, digits)
    return int(rounded) if rounded == int(rounded) else rounded


def calculate(expression: str) -> int | float:
    """Return the value of an expression with + - * / // % ** and parentheses.

    Raises ToolError for anything else, and for texts over 200 characters, numbers over 1e15 and
    exponents over 64: the work is bounded.
    """
    if len(expression) > LONGEST:
        raise ToolError(f"the expression has {len(expression)} characters; at most {LONGEST}")
    try:
        return tidy(_value(ast.parse(expression.strip(), mode="eval").body))
    except ZeroDivisionError:
        raise ToolError("division by zero") from None
    except OverflowError:
        raise ToolError(f"a number is larger than {LARGEST:g}") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ToolError(f"'{expression:.60}' is no arithmetic expression") from None


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return _bounded(node.value)  # pyright: ignore[reportArgumentType]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow):
            return _power(left, right)
        if type(node.op) in OPERATORS:
            return _bounded(OPERATORS[type(node.op)](left, right))
    raise ToolError("only numbers, + - * / // % ** and parentheses can be computed")


def _power(base: float, exponent: float) -> float:
    if abs(exponent) > LARGEST_EXPONENT:
        raise ToolError(f"the exponent is larger than {LARGEST_EXPONENT}")
    value = base**exponent
    if isinstance(value, complex):
        raise ToolError("the result is no real number")
    return _bounded(value)


def _bounded(value: float) -> float:
    if not abs(value) <= LARGEST:
        raise OverflowError
    return value
