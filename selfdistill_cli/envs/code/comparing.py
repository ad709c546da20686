"""Whether a value, or printed text, is what was expected. Pure functions of the trusted process."""

from __future__ import annotations

import math
from typing import Any

RELATIVE, ABSOLUTE = 1e-9, 1e-12


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
