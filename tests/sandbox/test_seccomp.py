"""The system call filter, run by a small interpreter of the same instructions as the kernel's."""

from __future__ import annotations

import errno
import struct

import pytest

from selfdistill_cli.sandbox.inside import seccomp

MACHINES = ("x86_64", "aarch64")
ALLOW, KILL = seccomp.ALLOW, seccomp.KILL
EPERM, ENOSYS = 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
# What must never pass: fork, vfork, execve, kill, socket, ptrace, unshare, mount, io_uring_setup.
FORBIDDEN = {
    "x86_64": (57, 58, 59, 62, 41, 101, 272, 165, 425, 234, 53, 310, 160, 157, 319, 434),
    "aarch64": (221, 129, 198, 117, 97, 40, 425, 131, 199, 270, 164, 167, 279, 434),
}


def verdict(machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """Run the filter on one system call."""
    arch = seccomp.AUDIT_ARCH[machine] if architecture is None else architecture
    padded = (*arguments, *[0] * (6 - len(arguments)))
    data = struct.pack("<IIQ6Q", number, arch, 0, *padded)
    code = seccomp.program(machine)
    accumulator, at = 0, 0
    while True:
        operation, if_true, if_false, value = struct.unpack_from("=HBBI", code, 8 * at)
        at += 1
        if operation == seccomp.LOAD:
            accumulator = struct.unpack_from("<I", data, value)[0]
        elif operation == seccomp.RETURN:
            return value
        else:
            holds = {
                seccomp.EQUAL: accumulator == value,
                seccomp.AT_LEAST: accumulator >= value,
                seccomp.ANY_BIT: bool(accumulator & value),
            }[operation]
            at += if_true if holds else if_false


@pytest.mark.parametrize("machine", MACHINES)
def test_listed_calls_pass_and_others_do_not(machine: str) -> None:
    column = MACHINES.index(machine)
    allowed = {numbers[column] for numbers in seccomp.ALLOWED.values()}
    special = {seccomp.CLONE, seccomp.CLONE3, seccomp.IOCTL, seccomp.FCNTL, seccomp.PRLIMIT}
    handled = allowed | {numbers[column] for numbers in special}
    for number in range(600):
        if number not in handled:
            assert verdict(machine, number) == EPERM
        elif number in allowed:
            assert verdict(machine, number) == ALLOW
    for number in FORBIDDEN[machine]:
        assert verdict(machine, number) == EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_calls_that_depend_on_arguments(machine: str) -> None:
    column = MACHINES.index(machine)
    clone, ioctl = seccomp.CLONE[column], seccomp.IOCTL[column]
    fcntl, prlimit = seccomp.FCNTL[column], seccomp.PRLIMIT[column]
    thread = 0x3D0F00
    assert verdict(machine, clone, thread) == ALLOW
    assert verdict(machine, clone, 17) == EPERM  # SIGCHLD: a process
    assert verdict(machine, seccomp.CLONE3[column], 1) == ENOSYS
    assert verdict(machine, ioctl, 0, 0x5401) == ALLOW
    assert verdict(machine, ioctl, 0, 0x5412) == EPERM  # TIOCSTI types into a terminal
    assert verdict(machine, fcntl, 0, 1) == ALLOW
    assert verdict(machine, fcntl, 0, 8) == EPERM  # F_SETOWN
    assert verdict(machine, fcntl, 0, 10) == EPERM  # F_SETSIG
    assert verdict(machine, prlimit, 0, 7, 0) == ALLOW
    assert verdict(machine, prlimit, 0, 7, 0x1000) == EPERM
    assert verdict(machine, prlimit, 0, 7, 1 << 32) == EPERM


def test_other_interfaces_of_the_same_kernel() -> None:
    i386 = 0x40000003
    assert verdict("x86_64", 4, architecture=i386) == KILL
    assert verdict("x86_64", 0x40000000 | 1) == ENOSYS
