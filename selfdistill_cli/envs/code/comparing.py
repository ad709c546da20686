"""Whether a value, or printed text, is what was expected. Pure functions of the trusted process."""

from __future__ import annotations

import math
import re
from typing import Any

RELATIVE, ABSOLUTE = 1e-9, 1e-12
LONGEST_NUMBER = 400
"""Characters of a word that may be a number; 1e308 written out has 309."""
DECIMAL = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?", re.ASCII)
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def equal(actual: Any, expected: Any, atol: float = ABSOLUTE, rtol: float = RELATIVE) -> bool:
    """Compare builtin values as tests in Python do, with two allowances.

    Floats may differ by a relative `rtol` or by `atol` (nan equals nan), and a tuple equals the
    list with the same items, because JSON knows only lists.
    """
    if isinstance(actual, (list, tuple)) and isinstance(expected, (list, tuple)):
        return len(actual) == len(expected) and all(
            equal(one, other, atol, rtol) for one, other in zip(actual, expected, strict=True)
        )
    if isinstance(actual, dict) and isinstance(expected, dict):
        return actual.keys() == expected.keys() and all(
            equal(actual[key], expected[key], atol, rtol) for key in expected
        )
    if isinstance(actual, float) or isinstance(expected, float):
        return _close(actual, expected, atol, rtol)
    return bool(actual == expected)


def _close(actual: Any, expected: Any, atol: float, rtol: float) -> bool:
    numbers = isinstance(actual, (int, float)) and isinstance(expected, (int, float))
    if not numbers:
        return False
    if actual != actual or expected != expected:
        return actual != actual and expected != expected
    try:
        return math.isclose(actual, expected, rel_tol=rtol, abs_tol=max(atol, ABSOLUTE))
    except OverflowError:
        return False


def same_output(printed: str, expected: str) -> bool:
    """Compare printed text line by line.

    White space at the ends of lines and empty lines at the end do not count; other white space
    does. Words must be the same text, or, where the expected word is a number with a point or an
    exponent, a number within 1e-9 of it (relative, or absolute). Whole numbers are exact, and so
    are words of more than 400 characters.
    """
    left, right = _lines(printed), _lines(expected)
    return len(left) == len(right) and all(map(_same_line, left, right))


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _same_line(printed: str, expected: str) -> bool:
    if printed == expected:
        return True
    left, right = re.split(r"(\s+)", printed), re.split(r"(\s+)", expected)
    return len(left) == len(right) and all(map(_same_word, left, right))


def _same_word(printed: str, expected: str) -> bool:
    if printed == expected:
        return True
    if max(len(printed), len(expected)) > LONGEST_NUMBER:
        return False
    if not DECIMAL.fullmatch(expected) or not NUMBER.fullmatch(printed):
        return False
    one, other = float(printed), float(expected)
    return math.isfinite(other) and math.isclose(one, other, rel_tol=RELATIVE, abs_tol=RELATIVE)
