"""One process at a time in a folder; the lock goes with the process, however that ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from pathlib import Path
from typing import IO

from selfdistill_cli.core.disk import writing
from selfdistill_cli.core.errors import ConfigError, UserError

LOOKS = 5
LOOK_S = 0.02


def acquire(path: Path, other: str) -> IO[str]:
    """Take the lock file of a folder and write this process's number into it.

    `other` says which key would name another folder. Closing the file gives the lock back. Raises
    UserError that names the process which holds it, ConfigError if there can be no lock.
    """
    try:
        lock = path.open("a+")
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be opened: {error.strerror}; expected a file that may be written; "
            f"delete it if no process uses {path.parent}, or choose another {other}"
        ) from error
    try:
        _lock(lock)
    except OSError as error:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise ConfigError(
                f"{path} cannot be locked: {error.strerror}; choose a run.root on a file system "
                "with locks"
            ) from error
        raise UserError(
            f"{path.parent} is in use by process {holder}; wait for it, or choose another {other}"
        ) from error
    with writing(path):
        lock.seek(0)
        lock.truncate()
        lock.write(str(os.getpid()))
        lock.flush()
    return lock


def _lock(lock: IO[str]) -> None:
    """Lock, or raise OSError; whoever only looks, as `holder_of`, is gone a moment later."""
    for _ in range(LOOKS):
        with contextlib.suppress(BlockingIOError):
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(LOOK_S)
    return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def holder_of(path: Path) -> int | None:
    """The process that holds a lock file now, 0 if its number is not known, None for nobody."""
    try:
        with path.open("r+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                found = lock.read().strip()
                return int(found) if found.isdigit() else 0
    except OSError:
        return None
    return None
