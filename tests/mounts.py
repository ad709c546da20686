"""Small real file systems for tests; a test that needs one is skipped where none may be mounted."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


def _mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, timeout=30)
    if done.returncode:
        pytest.skip(f"mount {' '.join(words)} is not allowed here: {done.stderr.strip()}")


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[None]:
    """Inside the block `folder` is a disk of its own, in memory."""
    folder.mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder))
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, timeout=30)


def resize(folder: Path, megabytes: int) -> None:
    """Give a small disk another size."""
    _mount("-o", f"remount,size={megabytes}m", str(folder))


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Inside the block nothing can be written below `folder`, not even by root."""
    _mount("--bind", str(folder), str(folder))
    try:
        _mount("-o", "remount,bind,ro", str(folder))
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, timeout=30)


def fill(file: Path, leave_megabytes: int) -> None:
    """Take the room of a file's disk but for some."""
    free = shutil.disk_usage(file.parent).free - leave_megabytes * 2**20
    with file.open("wb") as handle:
        handle.write(b"\0" * max(0, free))
