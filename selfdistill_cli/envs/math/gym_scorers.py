"""Own scorers for families of reasoning-gym whose scorers run the answer as Python or are lenient.

Answers are parsed here by hand, never evaluated by Python. Where the package accepts any
numbers (puzzle24) or a right answer among wrong ones (gsm_symbolic), these do not.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from selfdistill_cli.envs.math.answers import same

MAX_EXPRESSION = 400
ROLE = re.compile(r"(\w+) is an? (\w+)")
OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def arithmetic(text: str) -> tuple[Fraction, list[int]] | None:
    """Return the value of `+ - * /` over whole numbers, and the numbers; None for anything else."""
    if len(text) > MAX_EXPRESSION or not re.fullmatch(r"[0-9+\-*/() \t\n]+", text):
        return None
    used: list[int] = []
    try:
        return _value(ast.parse(text.strip(), mode="eval").body, used), used
    except (SyntaxError, ValueError, RecursionError, ZeroDivisionError, MemoryError):
        return None


def _value(node: ast.expr, used: list[int]) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) is int and node.value < 10**12:
        used.append(node.value)
        return Fraction(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, used)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](_value(node.left, used), _value(node.right, used))
    raise ValueError("no sum, difference, product or quotient")


def _with_numbers(answer: str, numbers: list[int], target: int) -> float:
    found = arithmetic(answer)
    return float(found is not None and found[0] == target and sorted(found[1]) == sorted(numbers))


def countdown(answer: str, entry: Mapping[str, Any]) -> float:
    """All numbers of the question, each once, make the target."""
    return _with_numbers(answer, entry["metadata"]["numbers"], entry["metadata"]["target"])


def puzzle24(answer: str, entry: Mapping[str, Any]) -> float:
    """The four numbers of the question, each once, make 24."""
    return _with_numbers(answer, entry["metadata"]["numbers"], 24)


def same_words(answer: str, entry: Mapping[str, Any]) -> float:
    """The expected text, whatever white space is between its words."""
    return float(answer.split() == str(entry["answer"]).split())


def same_rows(answer: str, entry: Mapping[str, Any]) -> float:
    """The expected rows, whatever white space is between their words."""
    return float(_rows(answer) == _rows(str(entry["answer"])))


def queens(answer: str, entry: Mapping[str, Any]) -> float:
    """One of the boards that complete the question's."""
    return float(_rows(answer) in [_rows(text) for text in entry["metadata"]["valid_answers"]])


def same_number(answer: str, entry: Mapping[str, Any]) -> float:
    """The expected number or fraction, and nothing beside it."""
    return float(bool(same(str(entry["answer"]), answer)))


def same_fraction(answer: str, entry: Mapping[str, Any]) -> float:
    """The expected fraction in lowest terms: an equal one is not simplified."""
    words = re.sub(r"[$\s]|\\dfrac|\\frac", "", answer).replace("}{", "/").strip("{}")
    expected = re.sub(r"[$\s]|\\dfrac|\\frac", "", str(entry["answer"]))
    return float(words == expected.replace("}{", "/").strip("{}"))


def same_roles(answer: str, entry: Mapping[str, Any]) -> float:
    """Everyone's role as expected; two roles for one person are wrong."""
    found, expected = (set(ROLE.findall(text.lower())) for text in (answer, str(entry["answer"])))
    return float(found == expected)


def same_text(answer: str, entry: Mapping[str, Any]) -> float:
    """The expected text."""
    return float(answer.strip() == str(entry["answer"]).strip())


def _rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines() if line.strip()]


OWN: dict[str, Callable[[str, Mapping[str, Any]], float]] = {
    "countdown": countdown,
    "puzzle24": puzzle24,
    "spiral_matrix": same_words,
    "string_insertion": same_words,
    "binary_matrix": same_rows,
    "n_queens": queens,
    "gsm_symbolic": same_number,
    "fraction_simplification": same_fraction,
    "knights_knaves": same_roles,
    "time_intervals": same_text,
}
