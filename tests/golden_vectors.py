"""Reference inputs and outputs of every formula: tests/golden/<topic>.json.

Each file holds `formula` (the binding definition) and `cases` with `name`, `inputs`, `expected`
and `tolerance` (per precision; null where a precision is not meaningful). Never change a vector
to make a test pass.
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

PRECISIONS = ("float64", "float32")
_SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def decode(x: Any) -> Any:
    """Turn the strings "nan", "inf" and "-inf" into numbers, at any depth."""
    if isinstance(x, list):
        return [decode(v) for v in x]
    if isinstance(x, dict):
        return {k: decode(v) for k, v in x.items()}
    return _SPECIAL.get(x, x) if isinstance(x, str) else x


@cache
def _read(topic: str) -> list[dict[str, Any]]:
    path = Path(__file__).parent / "golden" / f"{topic}.json"
    return [
        {**case, "inputs": decode(case["inputs"]), "expected": decode(case["expected"])}
        for case in json.loads(path.read_text())["cases"]
    ]


def cases(topic: str, **where: Any) -> list[Any]:
    """Return `pytest.param(case, id=name)` of a topic, decoded.

    `where` keeps the cases whose inputs have these values, for example `op="winners"`.
    """
    found = [pytest.param(case, id=case["name"]) for case in _selected(topic, where)]
    assert found, f"no case of {topic} has {where}"
    return found


def cases_by_precision(topic: str, **where: Any) -> list[Any]:
    """Return `pytest.param(case, precision, id="name-precision")` where a tolerance is given."""
    found = [
        pytest.param(case, precision, id=f"{case['name']}-{precision}")
        for case in _selected(topic, where)
        for precision in PRECISIONS
        if case["tolerance"][precision] is not None
    ]
    assert found, f"no case of {topic} has {where}"
    return found


def _selected(topic: str, where: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        case
        for case in _read(topic)
        if all(key in case["inputs"] and case["inputs"][key] == where[key] for key in where)
    ]


def tensor(value: Any, precision: str) -> torch.Tensor:
    """Return decoded numbers as a tensor of the precision, `float64` or `float32`."""
    return torch.tensor(value, dtype=getattr(torch, precision))


def check(
    actual: Any, expected: Any, tolerance: dict[str, Any], precision: str, exact: bool = False
) -> None:
    """Assert that |actual - expected| <= atol + rtol |expected|, or equality if `exact`.

    Lists may be ragged; shapes must agree; None matches None only and nan matches nan.
    """
    if isinstance(actual, torch.Tensor):
        actual = actual.detach()
    if isinstance(expected, dict):
        assert set(actual) == set(expected)
        for key in expected:
            check(actual[key], expected[key], tolerance, precision, exact)
    elif expected is None or isinstance(expected, str):
        assert actual == expected
    elif isinstance(expected, list):
        rows = actual.tolist() if isinstance(actual, (torch.Tensor, np.ndarray)) else list(actual)
        assert len(rows) == len(expected), f"length {len(rows)}, expected {len(expected)}"
        for one, other in zip(rows, expected, strict=True):
            check(one, other, tolerance, precision, exact)
    else:
        _check_number(float(actual), float(expected), tolerance[precision], exact)


def _check_number(actual: float, expected: float, bounds: dict[str, float], exact: bool) -> None:
    if math.isfinite(expected) and not exact:
        bound = bounds["atol"] + bounds["rtol"] * abs(expected)
        assert abs(actual - expected) <= bound, f"got {actual!r}, expected {expected!r} +- {bound}"
    else:
        same = actual == expected or (math.isnan(actual) and math.isnan(expected))
        assert same, f"got {actual!r}, expected exactly {expected!r}"


def check_case(actual: dict[str, Any], case: dict[str, Any], precision: str) -> None:
    """Check every key of `actual`, which must be all keys of the case's `expected`."""
    assert set(actual) == set(case["expected"])
    exact = case["tolerance"].get("exact", [])
    for key, value in actual.items():
        try:
            check(value, case["expected"][key], case["tolerance"], precision, key in exact)
        except AssertionError as error:
            raise AssertionError(f"{case['name']}: {key}: {error}") from error
