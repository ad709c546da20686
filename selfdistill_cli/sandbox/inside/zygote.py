"""The fork server: imports the standard library once, then forks one confined child per program.

It speaks with the trusted process over its standard input, a socket of whole messages:
`{"start": n, "role", "cpu_s"}` with the child's channel attached (and, for the role `stdio`, its
standard input and output), `{"stop": n}`; it answers
`{"ready": true}` once and `{"ended": n, "status", "cpu_s", "dirty"}` for every child.
End of file on that socket means that the trusted process is gone: everything here dies.
"""

from __future__ import annotations

import _sitebuiltins
import builtins
import contextlib
import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import sys
from typing import Any

from selfdistill_cli.sandbox.inside import confine, oracle, script, tester
from selfdistill_cli.sandbox.inside.seccomp import Filter

# What small programs import most; loaded once, so that a program finds them ready. The rest of
# the standard library is imported on demand: every mapping here makes every fork slower.
MODULES = (  # noqa: SIM905
    "abc bisect cmath collections copy dataclasses datetime decimal enum fractions functools "
    "heapq io itertools json math operator random re statistics string time typing"
).split()
CHANNEL = 3
ROLES = {"oracle": oracle.serve, "tester": tester.serve, "stdio": script.serve}


class Zygote:
    """Forks children one at a time, confines them and buries them."""

    def __init__(self, control: socket.socket, config: dict[str, Any]) -> None:
        """Load what children need and prove that a child can be confined; raises OSError."""
        # Slurm may send what is meant for the run to all its processes, programs at work included.
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
        self.control, self.config = control, config
        self.pid = os.getpid()
        self.number, self.child, self.handle = 0, 0, -1
        for name in MODULES:
            importlib.import_module(name)
        provide_exit()
        self.filter = Filter() if config["seccomp"] else None
        confine.adopt_orphans()
        if config["landlock"]:
            confine.landlock(config["readable"], config["devices"])
        confine.drop_capabilities()
        self.base_bytes = confine.address_space_in_use()
        sys.path[:] = [path for path in sys.path if path != config["home"]]
        self._probe()
        self.scratch_changed_ns = os.stat(".").st_ctime_ns
        gc.collect()
        gc.freeze()

    def _probe(self) -> None:
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                self._confine(1, self.config["file_bytes"])
                os._exit(0)
            os._exit(1)
        if os.waitpid(child, 0)[1] != 0:
            raise OSError("a child process could not be confined (seccomp or resource limits)")

    def _confine(self, cpu_s: int, file_bytes: int) -> None:
        os.setsid()
        confine.die_with_parent(self.pid)
        limits = {"memory_bytes": self.config["memory_bytes"], "file_bytes": file_bytes}
        confine.limit(self.base_bytes, cpu_s, limits, forbid_processes=self.filter is None)
        if self.filter is not None:
            self.filter.install()

    def serve(self) -> None:
        """Work until the trusted process hangs up."""
        while True:
            waiting = [self.control.fileno()] + ([self.handle] if self.child else [])
            ready, _, _ = select.select(waiting, [], [])
            if self.handle in ready:
                self._bury()
            elif not self._obey():
                return

    def _obey(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self.control, 1 << 16, 3)
        if not data:
            return False
        message = json.loads(data)
        if "start" in message:
            self._start(message, descriptors)
        elif message["stop"] == self.number and self.child:
            self._bury()
        return True

    def _start(self, message: dict[str, Any], descriptors: list[int]) -> None:
        self.number = message["start"]
        self.child = os.fork()
        if self.child == 0:
            with contextlib.suppress(BaseException):
                self._live(message, *descriptors)
                os._exit(0)
            os._exit(1)
        for descriptor in descriptors:
            os.close(descriptor)
        self.handle = os.pidfd_open(self.child)

    def _live(self, message: dict[str, Any], channel: int, *standard: int) -> None:
        """Be the child: from here on nothing returns to the fork server."""
        for number, descriptor in enumerate(standard):  # its standard input and output
            os.dup2(descriptor, number)
        channel = os.dup(channel) if channel != CHANNEL else channel
        self.control.close()
        if channel != CHANNEL:
            os.dup2(channel, CHANNEL)
        os.closerange(CHANNEL + 1, 64)
        file_bytes, output_bytes = self.config["file_bytes"], self.config["output_bytes"]
        # One byte more than may be printed, so that the other side sees that it was too much.
        self._confine(message["cpu_s"], max(file_bytes, output_bytes + 1 if standard else 0))
        os.write(CHANNEL, b"!")  # confined: what comes now is the program's
        gc.enable()
        random.seed(0)
        ROLES[message["role"]](CHANNEL, output_bytes)

    def _bury(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.child, signal.SIGKILL)
        _, status, usage = os.wait4(self.child, 0)
        os.close(self.handle)
        self.child, self.handle = 0, -1
        self._kill_strays()
        report = {
            "ended": self.number,
            "status": os.waitstatus_to_exitcode(status),
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "dirty": self._scratch_used(),
        }
        self.control.send(json.dumps(report).encode())

    def _scratch_used(self) -> bool:
        """Return whether files are left, or were there: when, the folder would tell the next."""
        with contextlib.suppress(OSError):
            return bool(os.listdir(".")) or os.stat(".").st_ctime_ns != self.scratch_changed_ns
        return False

    def _kill_strays(self) -> None:
        """Kill what a program left behind; only without seccomp can there be anything."""
        if self.filter is not None:
            return
        for _ in range(1000):
            with open(f"/proc/self/task/{self.pid}/children") as file:
                strays = [int(word) for word in file.read().split()]
            if not strays:
                return
            for stray in strays:
                os.kill(stray, signal.SIGKILL)
                os.waitpid(stray, 0)


def provide_exit() -> None:
    """Define `exit` and `quit`, which Python itself defines only with `site`."""
    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "end of input"))


def main() -> None:
    """Take the control socket from standard input, get ready, serve."""
    control = socket.socket(fileno=os.dup(0))
    config = json.loads(control.recv(1 << 20))
    if config["parent"]:
        confine.die_with_parent(config["parent"])
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    zygote = Zygote(control, config)
    os.dup2(null, 2)
    os.close(null)
    control.send(json.dumps({"ready": True}).encode())
    zygote.serve()
    os._exit(0)
