"""Which system calls a program may make: an allow list, as a classic BPF filter.

Everything that is not listed fails with EPERM: fork, exec, kill, sockets, ptrace, mounts,
namespaces, io_uring, shared memory, keyrings, and whatever later kernels add. So do calls that
change a file by its path or its metadata (truncate, times, mode, owner, attributes): Landlock has
no say in most of them. Numbers are those of the kernel's tables for x86-64 and for the generic
table that aarch64 uses.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

# name: (x86-64, aarch64 or None where the call does not exist)
ALLOWED: dict[str, tuple[int, int | None]] = {
    "read": (0, 63), "write": (1, 64), "futex": (202, 98), "mmap": (9, 222),
    "munmap": (11, 215), "mprotect": (10, 226), "brk": (12, 214), "mremap": (25, 216),
    "madvise": (28, 233), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115), "nanosleep": (35, 101), "gettimeofday": (96, 169),
    "time": (201, None), "times": (100, 153), "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
    "rt_sigsuspend": (130, 133), "rt_sigtimedwait": (128, 137), "sigaltstack": (131, 132),
    "restart_syscall": (219, 128), "exit": (60, 93), "exit_group": (231, 94),
    "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178), "getuid": (102, 174),
    "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177), "getgroups": (115, 158),
    "getpgid": (121, 155), "getpgrp": (111, None), "getsid": (124, 156), "fstat": (5, 80),
    "newfstatat": (262, 79), "stat": (4, None), "lstat": (6, None), "statx": (332, 291),
    "statfs": (137, 43), "fstatfs": (138, 44), "openat": (257, 56), "open": (2, None),
    "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439), "close": (3, 57),
    "close_range": (436, 436), "lseek": (8, 62), "pread64": (17, 67), "pwrite64": (18, 68),
    "readv": (19, 65), "writev": (20, 66), "getdents64": (217, 61), "getcwd": (79, 17),
    "chdir": (80, 49), "readlink": (89, None), "readlinkat": (267, 78), "dup": (32, 23),
    "dup2": (33, None), "dup3": (292, 24), "pipe": (22, None), "pipe2": (293, 59),
    "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72),
    "getrandom": (318, 278), "sysinfo": (99, 179), "uname": (63, 160), "getrusage": (98, 165),
    "getrlimit": (97, 163), "sched_yield": (24, 124), "sched_getaffinity": (204, 123),
    "getcpu": (309, 168), "set_robust_list": (273, 99), "get_robust_list": (274, 100),
    "rseq": (334, 293), "set_tid_address": (218, 96), "membarrier": (324, 283),
    "setitimer": (38, 103), "getitimer": (36, 102), "alarm": (37, None), "umask": (95, 166),
    "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None), "unlink": (87, None),
    "unlinkat": (263, 35), "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276),
    "ftruncate": (77, 46), "fsync": (74, 82), "fdatasync": (75, 83), "flock": (73, 32),
    "wait4": (61, 260), "waitid": (247, 95),
}  # fmt: skip

CLONE, CLONE3 = (56, 220), (435, 435)
IOCTL, FCNTL, PRLIMIT = (16, 29), (72, 25), (302, 261)
CLONE_THREAD = 0x00010000
# TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX: what Python asks of a file.
IOCTL_REQUESTS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, locks, F_DUPFD_CLOEXEC. Not F_SETOWN and F_SETSIG:
# with them the kernel sends any signal to any process of the same user.
FCNTL_COMMANDS = (0, 1, 2, 3, 4, 5, 6, 7, 1030)

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL = 0x7FFF0000, 0x80000000
DENY = 0x00050000 | errno.EPERM
MISSING = 0x00050000 | errno.ENOSYS
LOAD, EQUAL, ANY_BIT, AT_LEAST, RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _argument(index: int, high: bool = False) -> bytes:
    return _instruction(LOAD, ARGUMENTS + 8 * index + (4 if high else 0))


def _rule(number: int, body: list[bytes]) -> list[bytes]:
    """If the call has this number, run `body`, which ends in a verdict on every path."""
    return [_instruction(EQUAL, number, 0, len(body)), *body]


def _one_of(index: int, values: tuple[int, ...]) -> list[bytes]:
    checks = [_instruction(EQUAL, v, len(values) - i, 0) for i, v in enumerate(values)]
    return [_argument(index), *checks, _instruction(RETURN, DENY), _instruction(RETURN, ALLOW)]


def program(machine: str) -> bytes:
    """Return the filter for a machine (`platform.machine()`); KeyError where there is no table."""
    column = ("x86_64", "aarch64").index(machine) if machine in AUDIT_ARCH else -1
    code = [
        _instruction(LOAD, ARCHITECTURE),
        _instruction(EQUAL, AUDIT_ARCH[machine], 1, 0),
        _instruction(RETURN, KILL),
        _instruction(LOAD, NUMBER),
    ]
    if machine == "x86_64":  # the x32 interface has its own numbers
        code += [_instruction(AT_LEAST, 0x40000000, 0, 1), _instruction(RETURN, MISSING)]
    for numbers in ALLOWED.values():
        number = numbers[column]
        if number is not None:
            code += _rule(number, [_instruction(RETURN, ALLOW)])
    deny, allow = _instruction(RETURN, DENY), _instruction(RETURN, ALLOW)
    code += _rule(
        CLONE[column], [_argument(0), _instruction(ANY_BIT, CLONE_THREAD, 1, 0), deny, allow]
    )
    code += _rule(CLONE3[column], [_instruction(RETURN, MISSING)])  # libc then uses clone
    code += _rule(IOCTL[column], _one_of(1, IOCTL_REQUESTS))
    code += _rule(FCNTL[column], _one_of(1, FCNTL_COMMANDS))
    reading = [  # prlimit may read limits: its new_limit must be a null pointer, in both halves
        _argument(2),
        _instruction(EQUAL, 0, 0, 2),
        _argument(2, high=True),
        _instruction(EQUAL, 0, 1, 0),
        deny,
        allow,
    ]
    code += _rule(PRLIMIT[column], reading)
    return b"".join([*code, deny])


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


class Filter:
    """A filter built once and installed in each child."""

    def __init__(self) -> None:
        """Build the filter for this machine; raises OSError where there is no table for it."""
        machine = platform.machine()
        if machine not in AUDIT_ARCH:
            raise OSError(f"no system call table for machine type {machine}")
        code = program(machine)
        self._buffer = ctypes.create_string_buffer(code, len(code))
        self._program = _Program(len(code) // 8, ctypes.addressof(self._buffer))
        self._prctl = ctypes.CDLL(None, use_errno=True).prctl

    def install(self) -> None:
        """Confine the calling process for good; raises OSError."""
        set_no_new_privileges, set_seccomp, filter_mode = 38, 22, 2
        pointer = ctypes.byref(self._program)
        if self._prctl(set_no_new_privileges, 1, 0, 0, 0) or self._prctl(
            set_seccomp, filter_mode, pointer, 0, 0
        ):
            raise OSError(ctypes.get_errno(), "seccomp filter refused")
