"""Writing files so that a crash at any moment leaves the old state or the new one."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selfdistill_cli.core.errors import RunError


def sync_file(path: Path) -> None:
    """Force a file's content to disk."""
    with path.open("rb") as handle:
        os.fsync(handle.fileno())


def sync_directory(path: Path) -> None:
    """Force a directory's entries (renames, new files) to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Replace a file's content atomically: written aside, synced, renamed."""
    aside = path.with_name(f".{path.name}.partial")
    with aside.open("w", encoding="utf-8") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    aside.replace(path)
    sync_directory(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file atomically."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def point(link: Path, target: str) -> None:
    """Let a symbolic link name another entry of its folder, atomically."""
    aside = link.with_name(f".{link.name}.partial")
    aside.unlink(missing_ok=True)
    aside.symlink_to(target)
    aside.replace(link)
    sync_directory(link.parent)


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def write_folder(path: Path, fill: Callable[[Path], None]) -> None:
    """Write a folder aside, sync it, and put it in its place; an earlier one is replaced."""
    aside = path.with_name(f".{path.name}.partial")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        fill(aside)
        for file in (entry for entry in aside.rglob("*") if entry.is_file()):
            sync_file(file)
    except (OSError, RuntimeError) as error:  # torch reports a failed write as RuntimeError
        shutil.rmtree(aside, ignore_errors=True)
        raise RunError(f"{path} could not be written: {error}. Free some space.") from error
    shutil.rmtree(path, ignore_errors=True)
    aside.rename(path)
    sync_directory(path.parent)
