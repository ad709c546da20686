"""EvalPlus (HumanEval+, MBPP+): inputs without results, and tests that compare with numpy."""

from __future__ import annotations

import ast
import re
from typing import Any

from selfdistill_cli.envs.code.readers.python_fields import parse
from selfdistill_cli.envs.json_lines import Line
from selfdistill_cli.sandbox.inside import wire

NUMPY = re.compile(r"^import numpy as np[ \t]*$", re.MULTILINE)
KNOWN = frozenset({"allclose", "testing", "assert_allclose", "ndarray", "float32", "float64"})
FLOAT_TOLERANCE = 1e-6  # EvalPlus takes it for results that are floats where `atol` is 0
RELATIVE_TOLERANCE = 1e-7
STANDIN = '''\
class np:
    """What the tests use of numpy, on numbers and nested lists; nothing is broadcast."""

    class ndarray: ...

    float32 = float64 = float

    @staticmethod
    def allclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
        if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
            if len(a) != len(b):
                return False
            return all(np.allclose(x, y, rtol, atol, equal_nan) for x, y in zip(a, b))
        numbers = (int, float, complex)
        if not isinstance(a, numbers) or not isinstance(b, numbers):
            return False
        if a != a or b != b:
            return equal_nan and a != a and b != b
        return a == b or (abs(b) != float("inf") and abs(a - b) <= atol + rtol * abs(b))

    class testing:
        @staticmethod
        def assert_allclose(actual, desired, rtol=1e-07, atol=0, equal_nan=True):
            assert np.allclose(actual, desired, rtol, atol, equal_nan)


'''


def is_harness(test: Any) -> bool:
    """Whether test code is EvalPlus's: a list of inputs and a function `assertion`."""
    return isinstance(test, str) and "def assertion(" in test and "inputs =" in test


def without_numpy(line: Line, test: str) -> tuple[str, str]:
    """Return test code without its import of numpy, and the few lines that stand for it.

    The sandbox has the standard library only. Raises DataError where tests use more of numpy.
    """
    if not NUMPY.search(test):
        return test, ""
    used = {
        node.attr
        for node in ast.walk(parse(line, "test", test))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("np", "np.testing")
    }
    if used - KNOWN:
        raise line.error(
            "test",
            f"a use of np.{min(used - KNOWN)}",
            "the standard library only, which is what the sandbox has (and "
            f"{', '.join(sorted(KNOWN))} of numpy)",
        )
    return NUMPY.sub("", test), STANDIN


def inputs(line: Line, answer: str | None) -> dict[str, Any]:
    """Return calls whose results are made by running the reference; raises DataError."""
    if answer is None:
        raise line.error(
            "canonical_solution",
            'no such field beside "base_input"',
            "a reference: what it returns for these inputs is what is expected",
        )
    calls: list[list[Any]] = []
    for name in ("base_input", "plus_input"):
        rows = line.record.get(name) or []
        if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
            raise line.error(name, f"{rows!r:.60}", "a list of lists of arguments")
        for i, row in enumerate(rows):
            try:
                wire.encode(row)
            except wire.Unsendable as error:
                limit = f"values nested at most {wire.MAX_DEPTH} deep"
                raise line.error(f"{name}[{i}]", str(error), limit) from None
        calls += rows
    if not calls:
        raise line.error("base_input", "an empty list", "at least one list of arguments")
    found = tolerance(line)
    atol = found.get("atol") or FLOAT_TOLERANCE
    return {"calls": calls, "atol": atol, "rtol": RELATIVE_TOLERANCE}


def tolerance(line: Line) -> dict[str, float]:
    """Return `atol`, the absolute difference that floats may have, if the line has it."""
    value = line.record.get("atol")
    if value is None:
        return {}
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e300:
        raise line.error("atol", f"{value!r:.60}", "a number of at least 0")
    return {"atol": float(value)}
