"""Files that settings of environments name: what is said when one is not there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from selfdistill_cli.core.errors import DataError, did_you_mean


def problem_with_file(path: str, expected: str, names: Iterable[str] = ()) -> str | None:
    """Return why there is no such file, what is expected and the nearest name; None if it is there.

    `expected` says what the key takes, `names` which words it takes beside files.
    """
    place = Path(path)
    if place.is_file():
        return None
    found = "is a folder" if place.is_dir() else "no such file"
    near = did_you_mean(path, names) or did_you_mean(place.name, _files_beside(place))
    return f"{found}; expected {expected}{near}"


def file_or_error(path: str, key: str, expected: str, names: Iterable[str] = ()) -> Path:
    """Return the path of a file; raises DataError naming the key and the nearest file."""
    problem = problem_with_file(path, expected, names)
    if problem is not None:
        raise DataError(f"{key}={path}: {problem}")
    return Path(path)


def cache_folder(name: str) -> Path:
    """Return the user's cache folder for one kind of files, as the XDG specification places it."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "selfdistill" / name


def _files_beside(place: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return [path.name for path in place.parent.iterdir() if path.is_file()]
    return []
