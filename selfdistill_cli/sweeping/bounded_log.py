"""A log that cannot fill a disk: of a long one the beginning and the end are kept.

Imports nothing but the standard library: it runs in a process of its own for every cell.
"""

from __future__ import annotations

import os
from pathlib import Path

HEAD = 0.25
TAIL = 0.25
"""Shares of the limit that are kept when it is reached."""


class BoundedLog:
    """Appends to a file of at most `limit` bytes. A write that fails is passed over."""

    def __init__(self, path: Path, limit: int):
        self.limit = max(limit, 4096)
        self.left_out = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, data: bytes) -> None:
        """Append what a process said."""
        try:
            for start in range(0, len(data), self.limit // 8):
                part = data[start : start + self.limit // 8]
                if os.fstat(self._file).st_size + len(part) > self.limit:
                    self._shorten()
                os.write(self._file, part)
        except OSError:  # no room on the disk: the process that speaks must not suffer
            self.left_out += len(data)

    def _shorten(self) -> None:
        """Keep the beginning and the end, and say in between how much was left out."""
        size = os.fstat(self._file).st_size
        head, tail = int(self.limit * HEAD), int(self.limit * TAIL)
        if size <= head + tail:
            return
        end = os.pread(self._file, tail, size - tail)
        self.left_out += size - head - tail
        os.ftruncate(self._file, head)
        os.write(self._file, f"\n[... {self.left_out} bytes left out ...]\n".encode())
        os.write(self._file, end)

    def close(self) -> None:
        """Give the file back."""
        os.close(self._file)
