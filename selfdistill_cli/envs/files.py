"""Files that settings of environments name."""

from __future__ import annotations

from pathlib import Path


def missing_file(key: str, path: str, expected: str) -> str | None:
    """Return why there is no such file, or None; `expected` says what the key takes."""
    if Path(path).is_file():
        return None
    found = "is a folder" if Path(path).is_dir() else "no such file"
    return f"{key}: got '{path}', {found}; expected {expected}"
