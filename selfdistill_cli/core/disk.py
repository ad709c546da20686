"""Files that are whole or absent, and what is said when one cannot be written."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Generator
from pathlib import Path

from selfdistill_cli.core.errors import RunError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Reasons that lie with the disk, not with the program."""


@contextlib.contextmanager
def writing(path: Path, also: tuple[type[Exception], ...] = ()) -> Generator[None, None, None]:
    """Turn a failed write of a file or folder into a RunError that names it and the remedy.

    `also` are exceptions by which a library reports a failed write.
    """
    try:
        yield
    except (OSError, *also) as error:
        raise RunError(unwritten(path, error)) from error


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old one or the new one.

    Written aside, synced, renamed; the folder is made if need be. Raises RunError.
    """
    aside = path.with_name(f".{path.name}.partial")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with aside.open("wb") as handle:
                handle.write(data)
                handle.flush()
                os.fsync(handle.fileno())
            aside.replace(path)
        except OSError:
            aside.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)


def append_line(path: Path, line: str) -> None:
    """Append one line to a file, whole or not at all; it is on the disk on return.

    Raises RunError. The wait for the disk costs about 4 ms.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file:
            before, data = file.tell(), memoryview(f"{line}\n".encode())
            try:
                while data:  # a nearly full disk takes a part and says so by the count
                    data = data[file.write(data) :]
                os.fsync(file.fileno())
            except OSError:
                file.truncate(before)
                raise


def sync_directory(path: Path) -> None:
    """Force a directory's entries (renames, new files) to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unwritten(path: Path | str, error: BaseException) -> str:
    """Say that a write failed and what to do."""
    reason = (isinstance(error, OSError) and error.strerror) or error
    return (
        f"{path} could not be written: {reason}. What was written before is intact; free some "
        "space, or choose a folder that can be written to, and give the same command again."
    )
