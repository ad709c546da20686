"""Texts of hints: what is known of a problem, and what its attempts got wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from selfdistill_cli.core.types import Task
from selfdistill_cli.envs.math.answers import number

EQUATION = re.compile(
    r"(?<![\w.^/*+\-=])(-?[0-9][0-9.,]{0,20}(?:\s?[-+*/×]\s?[0-9][0-9.,]{0,20}){1,8})\s?=\s?"
    r"(-?[0-9][0-9,]{0,20}(?:\.[0-9]{1,20})?)(?![\w^/*.]|\s?[-+*/×=])"
)
PART = re.compile(r"[-+*/×]|[0-9][0-9.,]*")
GOES_ON = ("x", "of", "times", "plus", "minus", "by", "over", "and", "than")
NO_ANSWER = "There is no answer in the form that was asked for."
WRONG = {
    "too_long": "The answer is too long to be one.",
    "refused": "The answer is not a number or a short expression.",
    "timeout": "The answer is not a number or a short expression.",
    "error": "The answer cannot be read as a number or an expression.",
}
MAX_SHOWN = 4000


def evidence(task: Task) -> str | None:
    """Return the problem's intermediate results."""
    return "\n".join(task.meta["evidence"]) or None


def feedback(outcome: Mapping[str, Any]) -> str:
    """Return what is wrong with an attempt; never the right answer.

    A calculation of the response that does not hold is named; without one, only that the answer
    is wrong.
    """
    if outcome["answer"] is None:
        return NO_ANSWER
    wrong = next(wrong_calculations(outcome["response"]), None)
    if wrong is not None:
        return f"This step is wrong: {wrong}"
    return WRONG.get(outcome["verdict"], f"The answer {outcome['answer']} is wrong.")


def told(outcome: Mapping[str, Any]) -> str:
    """Return a failed response with what is wrong with it."""
    return f"{outcome['response'].strip()}\n{feedback(outcome)}"


def wrong_calculations(text: str) -> Iterator[str]:
    """Yield calculations such as `7+5=13` that do not hold; rounded results pass."""
    shown = text[-MAX_SHOWN:]
    if len(text) > MAX_SHOWN:
        shown = shown.partition("\n")[2]  # a line that is cut could say something else
    for found in EQUATION.finditer(shown):
        if not _begins(shown[: found.start()]):
            continue
        value, said = _value(found.group(1)), number(found.group(2))
        if value is None or said is None:
            continue
        decimals = len(found.group(2).partition(".")[2])
        exact = value == said
        # A quotient that is cut or rounded is no mistake.
        rounded = "/" in found.group(1) and abs(value - said) <= Fraction(1, 10**decimals)
        if not (exact or rounded):
            yield " ".join(found.group().split())


def _begins(before: str) -> bool:
    """Whether a calculation can begin after this text, rather than go on from it."""
    words = before.rpartition("\n")[2].split()
    if not words:
        return True
    last = words[-1].lower()
    return not (last in GOES_ON or last[-1:] in "+-*/×^=()[]{}%$" or last[-1:].isdigit())


def _value(text: str) -> Fraction | None:
    """Return the value of a calculation without brackets, products first; None if it has none."""
    negative = text.startswith("-")
    parts = PART.findall(text.removeprefix("-"))
    numbers = [number(part.rstrip(".,")) for part in parts[::2]]
    if None in numbers or len(parts) % 2 == 0:
        return None
    total, term = Fraction(0), (numbers[0] or Fraction(0)) * (-1 if negative else 1)
    for sign, value in zip(parts[1::2], numbers[1:], strict=True):
        assert value is not None
        if sign in "*×":
            term *= value
        elif sign == "/":
            if not value:
                return None
            term /= value
        else:
            total, term = total + term, value if sign == "+" else -value
    return total + term


def contrast(good: str, bad: str) -> str | None:
    """Return `Do: 7+5=12` and `Not: 7+5=13`: the first line that differs. None if none does."""
    sides = [[line.strip() for line in text.splitlines() if line.strip()] for text in (good, bad)]
    for i in range(max(map(len, sides))):
        lines = [side[i] if i < len(side) else "nothing" for side in sides]
        if lines[0] != lines[1]:
            return f"Do: {lines[0][:160]}\nNot: {lines[1][:160]}"
    return None
