"""A fork server as the trusted process sees it, and the channels to what it forks."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from selfdistill_cli.core.errors import SandboxError
from selfdistill_cli.sandbox import groups
from selfdistill_cli.sandbox.inside import wire
from selfdistill_cli.sandbox.levels import ENVIRONMENT, Launch

START_LIMIT_S = 60.0
BURIAL_LIMIT_S = 20.0
CONFINE_LIMIT_S = 30.0
"""From asking for a process until it is confined: milliseconds, but for a machine that stalls."""

T = TypeVar("T")


class Late(Exception):
    """The other side did not answer before the deadline."""


class Gone(Exception):
    """The other side hung up."""


class Garbage(Exception):
    """The other side sent something that is not a message."""


class TooLarge(Garbage):
    """The other side began a frame that is longer than it may be."""


class WorkerLost(Exception):
    """A fork server died or does not answer; its job may be tried on another one."""


@dataclass(frozen=True)
class Wait:
    """A dialogue sleeps until this socket has something to say, or until the deadline."""

    socket: socket.socket
    deadline: float
    writing: bool = False


Dialogue = Generator[Wait, None, T]


class Channel:
    """Frames to and from one confined child, over a socket that never blocks."""

    def __init__(self, end: socket.socket, limit_bytes: int) -> None:
        """Take one end; frames longer than `limit_bytes` are garbage."""
        end.setblocking(False)
        self._socket, self._limit = end, limit_bytes
        self._in, self._out = bytearray(), bytearray()

    def send(self, message: Any) -> None:
        """Queue a frame and send what the socket takes; the rest goes while waiting."""
        self._out += wire.pack(message)
        self._flush()

    def _flush(self) -> None:
        try:
            while self._out:
                del self._out[: self._socket.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:  # gone: the next read says so
            self._out.clear()

    def confined(self, deadline: float) -> Dialogue[None]:
        """Wait for the sign that the child is confined: one byte, before any frame.

        Raises Late or Gone.
        """
        while not self._in:
            yield from self._more(deadline)
        del self._in[:1]

    def receive(self, deadline: float) -> Dialogue[dict[str, Any]]:
        """Return the next message; raises Late, Gone or Garbage."""
        while True:
            message = self._next()
            if message is not None:
                return message
            yield from self._more(deadline)

    def _more(self, deadline: float) -> Dialogue[None]:
        """Take what has arrived, or wait for it."""
        if self._fill():
            return
        if time.monotonic() >= deadline:
            raise Late
        self._flush()
        yield Wait(self._socket, deadline, bool(self._out))

    def _fill(self) -> bool:
        try:
            data = self._socket.recv(1 << 16)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            raise Gone
        self._in += data
        return True

    def _next(self) -> dict[str, Any] | None:
        if len(self._in) < wire.HEADER:
            return None
        end = wire.HEADER + int.from_bytes(self._in[: wire.HEADER], "big")
        if end > self._limit:
            raise TooLarge
        if len(self._in) < end:
            return None
        body = bytes(self._in[wire.HEADER : end])
        del self._in[:end]
        try:
            message = wire.parse(body)
        except ValueError:
            raise Garbage from None
        if type(message) is not dict:
            raise Garbage
        return message

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


class Worker:
    """One fork server. It runs one program at a time."""

    def __init__(self, launch: Launch) -> None:
        """Start it without waiting for it; `ready` waits."""
        self._config = launch.config
        self._limit = launch.config["output_bytes"] + 4096
        self._scratch = (
            tempfile.TemporaryDirectory(prefix="selfdistill-") if launch.scratch else None
        )
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 closed by close
        self._group = launch.group and groups.make(launch.group, launch.group_limits)
        command = self._group.wrap(launch.command) if self._group else launch.command
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                command,
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env=ENVIRONMENT,
                cwd=self._scratch.name if self._scratch else "/",
                start_new_session=True,  # Ctrl-C in the terminal is for the run, not for us
            )
        self._control.setblocking(False)
        self._count = 0
        self._running = False
        self.dirty = False

    @property
    def alive(self) -> bool:
        """The fork server's process exists."""
        return self._process.poll() is None

    def _tell(self, message: Any, descriptors: tuple[int, ...] = ()) -> None:
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], descriptors)
        except OSError as error:
            raise WorkerLost(str(error)) from None

    def _hear(self, deadline: float) -> Dialogue[dict[str, Any]]:
        while True:
            try:
                data = self._control.recv(1 << 16)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise WorkerLost("no answer") from None
                yield Wait(self._control, deadline)
                continue
            except OSError:
                data = b""
            if not data:
                raise WorkerLost("the fork server is gone")
            return json.loads(data)

    def ready(self) -> Dialogue[None]:
        """Wait until programs can be confined; raises SandboxError with what was printed."""
        try:
            self._tell(self._config)
            yield from self._hear(time.monotonic() + START_LIMIT_S)
        except WorkerLost as error:
            self._process.kill()
            self._process.wait()
            self._errors.seek(0)
            lines = self._errors.read(1 << 16).decode(errors="replace").strip().splitlines()
            raise SandboxError(lines[-1] if lines else str(error)) from None

    def open(
        self, role: str, cpu_s: int, files: Sequence[int] = (), frame_bytes: int | None = None
    ) -> Dialogue[Channel]:
        """Fork a child and return the channel to it; raises WorkerLost.

        `files` are descriptors that become the child's 0 and 1; `frame_bytes` is a limit of its
        own for what it may send.
        """
        yield from self.settle()
        if self.dirty:
            raise WorkerLost("files of the last program remain")
        ours, theirs = socket.socketpair()
        self._count += 1
        with theirs:
            message = {"start": self._count, "role": role, "cpu_s": cpu_s}
            self._tell(message, (theirs.fileno(), *files))
        self._running = True
        return Channel(ours, frame_bytes or self._limit)

    def stop(self) -> None:
        """Have the running child killed; does not wait."""
        if self._running:
            with contextlib.suppress(WorkerLost):  # found out when it is used again
                self._tell({"stop": self._count})

    def ended(self, deadline: float) -> Dialogue[bool]:
        """Wait until the child is dead, or until the deadline; return whether it is."""
        while self._running and not select.select([self._control], [], [], 0)[0]:
            if time.monotonic() >= deadline:
                return False
            yield Wait(self._control, deadline)
        return True

    def settle(self) -> Dialogue[dict[str, Any] | None]:
        """Wait until the child is dead and buried; return its report, None if there is none."""
        if not self._running:
            return None
        report = yield from self._hear(time.monotonic() + BURIAL_LIMIT_S)
        self._running = False
        self.dirty = report["dirty"]
        return report

    def close(self) -> None:
        """Kill the fork server and everything below it. May be called again."""
        self._control.close()
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._errors.close()
        if self._group is not None:
            self._group.close()
        if self._scratch is not None:
            self._scratch.cleanup()
