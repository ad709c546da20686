"""JSON that every reader accepts, and files that are whole or absent."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from selfdistill_cli.core.disk import writing

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


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old one or the new one.

    Raises RunError if it cannot be written.
    """
    aside = path.with_name(f"{path.name}.tmp")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with aside.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        except OSError:
            aside.unlink(missing_ok=True)
            raise
