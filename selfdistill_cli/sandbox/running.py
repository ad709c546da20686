"""One confined process as the trusted process sees it: opened, spoken to, ended, diagnosed."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Sequence
from typing import Any

from selfdistill_cli.core.errors import SandboxError
from selfdistill_cli.sandbox.worker import (
    CONFINE_LIMIT_S,
    Channel,
    Dialogue,
    Garbage,
    Gone,
    Late,
    TooLarge,
    Worker,
    WorkerLost,
)

UNCONFINED = (
    "a program's process ended before it was confined; the machine may be out of memory or "
    "processes; nothing was run"
)


class Dead(Exception):
    """The confined process is no more: `status` says why, for a report."""

    def __init__(self, status: Any, message: str) -> None:
        """Keep the status and a message for people."""
        super().__init__(message)
        self.status, self.message = status, message


class Running:
    """One confined process and the conversation with it."""

    frame_bytes: int | None = None
    """The longest frame that it may send; None takes what `max_output_kb` says."""

    def __init__(self, worker: Worker, limit_s: float) -> None:
        """Prepare; nothing runs before `open`."""
        self.worker = worker
        self._limit_s, self._cpu_s = limit_s, max(1, math.ceil(limit_s))
        self.channel: Channel | None = None
        self.deadline = math.inf

    def open(self, role: str, request: dict[str, Any], files: Sequence[int] = ()) -> Dialogue[None]:
        """Fork the process, send its first message, wait until it is confined.

        Raises WorkerLost, also if it takes too long: nothing of the program has run then, so it
        is not the program that is late. Raises SandboxError if it ended instead.
        """
        limit = self.frame_bytes
        self.channel = yield from self.worker.open(role, self._cpu_s, files, limit)
        self.send(request)
        try:
            yield from self.channel.confined(time.monotonic() + CONFINE_LIMIT_S)
        except Late:
            self.close()
            raise WorkerLost("a program was not confined in time") from None
        except Gone:
            self.close()
            yield from self.worker.settle()
            raise SandboxError(UNCONFINED) from None
        # Generous, because a busy machine must not change a verdict; the CPU limit is exact.
        self.deadline = time.monotonic() + 3.0 * self._limit_s + 1.0

    def send(self, message: dict[str, Any]) -> None:
        """Queue a message."""
        assert self.channel is not None
        self.channel.send(message)

    def receive(self) -> Dialogue[dict[str, Any]]:
        """Return the next message; raises Dead."""
        assert self.channel is not None
        try:
            return (yield from self.channel.receive(self.deadline))
        except Late:
            raise (yield from self._end("timeout", "time limit exceeded")) from None
        except TooLarge:
            raise (yield from self._end(*self.too_large())) from None
        except Garbage:
            raise (yield from self._end("crashed", "malformed answer")) from None
        except Gone:
            raise (yield from self._end("", "")) from None

    def too_large(self) -> tuple[str, str]:
        """Return the status and the message for a frame beyond the limit."""
        return "crashed", "it sent an answer larger than env.sandbox.max_output_kb"

    def violation(self) -> Dialogue[Dead]:
        """End a process that does not keep to the protocol; return what to raise."""
        return (yield from self._end("crashed", "malformed answer"))

    def _end(self, status: str, message: str) -> Dialogue[Dead]:
        """Kill, bury and diagnose."""
        self.close()
        report = yield from self.worker.settle()
        if status or report is None:
            return Dead(status, message)
        return self.diagnose(report["status"], report["cpu_s"])

    def diagnose(self, status: int, cpu_s: float) -> Dead:
        """Say why a process that has ended by itself did so."""
        # A program that ignores SIGXCPU is killed at the hard limit. Nobody else sends SIGKILL
        # but the kernel when memory runs out. Its clock for limits and the one reported differ.
        ignored = status == -signal.SIGKILL and cpu_s >= 0.5 * self._cpu_s
        if status == -signal.SIGXCPU or ignored:
            return Dead("timeout", "time limit exceeded")
        if status < 0:
            try:
                name = signal.Signals(-status).name
            except ValueError:
                name = f"signal {-status}"
            return Dead("crashed", f"the process was killed by {name}")
        return Dead("crashed", f"the program ended the process with exit code {status}")

    def close(self) -> None:
        """Hang up and have the process killed. May be called again."""
        if self.channel is not None:
            self.channel.close()
            self.channel = None
            self.worker.stop()
