"""What a process gives up: capabilities, files (Landlock) and resources."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import stat
import struct
from collections.abc import Mapping, Sequence

READ = (1 << 2) | (1 << 3)  # LANDLOCK_ACCESS_FS_READ_FILE, READ_DIR
READ_FILE, WRITE_FILE = 1 << 2, 1 << 1
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
# The number of rights of files, by version of the Landlock interface.
FILE_RIGHTS = {3: 15, 4: 15}
ALL_FILE_RIGHTS = 16
FIRST_VERSION = 3
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long


def _call(*arguments: object) -> int:
    result = LIBC.syscall(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(result)


def landlock_version() -> int:
    """Return the version of the kernel's Landlock interface; raises OSError where it is off."""
    return _call(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))


def file_rights(version: int) -> int:
    """Return the rights of files that are taken away; raises OSError for an old interface.

    Before version 3 a file that may not be written can still be emptied: O_TRUNC needs no right.
    """
    if version < FIRST_VERSION:
        raise OSError(
            f"this kernel's Landlock (version {version}) does not stop programs from emptying "
            f"files; version {FIRST_VERSION}, of Linux 6.2, does"
        )
    return (1 << FILE_RIGHTS.get(version, ALL_FILE_RIGHTS)) - 1


def landlock(readable: Sequence[str], devices: Sequence[str]) -> None:
    """Deny this process and its children every file but these, and TCP; raises OSError."""
    version = landlock_version()
    attributes = struct.pack("=Q", file_rights(version))
    if version >= 4:
        attributes += struct.pack("=Q", 0b11)  # bind and connect of TCP
    if version >= 6:
        attributes += struct.pack("=Q", 0b11)  # abstract unix sockets, signals
    ruleset = _call(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    for path in readable:
        _allow(ruleset, path, READ)
    for path in devices:
        _allow(ruleset, path, READ_FILE | WRITE_FILE)
    if LIBC.prctl(38, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs refused")
    _call(RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            rights &= READ_FILE | WRITE_FILE
        rule = struct.pack("=Qi", rights, handle)
        _call(ADD_RULE, ruleset, 1, rule, 0)
    finally:
        os.close(handle)


def drop_capabilities() -> None:
    """Give up all capabilities, so that root is an ordinary user; raises OSError."""
    header = struct.pack("=Ii", 0x20080522, 0)
    if LIBC.capset(header, bytes(24)):
        raise OSError(ctypes.get_errno(), "capset refused")


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies."""
    LIBC.prctl(1, 9, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of processes whose own parent in this tree died."""
    LIBC.prctl(36, 1, 0, 0, 0)


def address_space_in_use() -> int:
    """Return this process's address space in bytes, found without /proc by trying limits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    low, high = 0, 1 << 40
    while high - low > 1 << 20:
        middle = (low + high) // 2
        resource.setrlimit(resource.RLIMIT_AS, (middle, hard))
        try:
            mmap.mmap(-1, mmap.PAGESIZE).close()
            high = middle
        except (OSError, MemoryError):
            low = middle
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    return high


def limit(base_bytes: int, cpu_s: int, limits: Mapping[str, int], forbid_processes: bool) -> None:
    """Set the limits of one program, soft and hard, so that they cannot be raised again.

    Only the CPU limit has a second of grace: at the soft limit comes SIGXCPU, which says why the
    program died; one that ignores it is killed at the hard limit.
    """
    pairs = [
        (resource.RLIMIT_AS, base_bytes + limits["memory_bytes"]),
        (resource.RLIMIT_FSIZE, limits["file_bytes"]),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ]
    if forbid_processes:
        pairs.append((resource.RLIMIT_NPROC, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    for which, value in pairs:
        resource.setrlimit(which, (value, value))
