"""Writing files so that a crash at any moment leaves the old state or the new one."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from selfdistill_cli.core.disk import replace_file, sync_directory, writing

WRITE_ERRORS = (RuntimeError, SafetensorError)
"""How torch and safetensors report a failed write."""


def launch_folder(name: str) -> Path:
    """A folder of `launch`, beside the package in a checkout and inside it in a wheel."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "launch" / name
    return inside if inside.is_dir() else package.parent / "launch" / name


def sync_file(path: Path) -> None:
    """Force a file's content to disk."""
    with path.open("rb") as handle:
        os.fsync(handle.fileno())


def write_text(path: Path, text: str) -> None:
    """Replace a file's content atomically, whatever characters it has; raises RunError."""
    replace_file(path, text.encode(errors="backslashreplace"))


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file atomically."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def point(link: Path, target: str) -> None:
    """Let a symbolic link name another entry of its folder, atomically.

    A folder in its place, as a copy of a run has where links were followed, is kept as `copy_of_*`.
    """
    if link.is_dir() and not link.is_symlink():
        shutil.rmtree(link.with_name(f"copy_of_{link.name}"), ignore_errors=True)
        link.rename(link.with_name(f"copy_of_{link.name}"))
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
    """Write a folder aside, sync it, and put it in its place; an earlier one is replaced.

    A failure leaves the earlier one untouched and is a RunError.
    """
    aside = path.with_name(f".{path.name}.partial")
    shutil.rmtree(aside, ignore_errors=True)
    with writing(path, WRITE_ERRORS):
        try:
            aside.mkdir(parents=True)
            fill(aside)
            for file in (entry for entry in aside.rglob("*") if entry.is_file()):
                sync_file(file)
            shutil.rmtree(path, ignore_errors=True)
            aside.rename(path)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        sync_directory(path.parent)
