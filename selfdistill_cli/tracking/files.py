"""JSON that every reader accepts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

LARGEST = 1 << 1024
"""Whole numbers from here on exceed every float."""


def plain(value: Any) -> Any:
    """Return a JSON value: numpy scalars as numbers, non-finite floats as None, else text.

    A whole number that no reader can hold, as a program may return, becomes text too.
    """
    if isinstance(value, int) and abs(value) >= LARGEST:
        return hex(value)
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    item = getattr(value, "item", None)
    return plain(item()) if callable(item) else str(value)


def compact(value: Any) -> str:
    """One line of JSON without blanks; `value` has been through `plain`."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
