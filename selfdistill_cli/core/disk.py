"""What is said when a file cannot be written."""

from __future__ import annotations

import contextlib
import errno
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


def unwritten(path: Path | str, error: BaseException) -> str:
    """Say that a write failed and what to do."""
    reason = (isinstance(error, OSError) and error.strerror) or error
    return (
        f"{path} could not be written: {reason}. What was written before is intact; free some "
        "space, or choose a folder that can be written to, and give the same command again."
    )
