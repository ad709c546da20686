"""When a run must stop: Ctrl-C, SIGTERM, SIGUSR1, or a time limit that was known beforehand.

The first request lets the step end and asks for a checkpoint; a second Ctrl-C or SIGTERM stops at
once. A step that does not end within the grace is given up where that costs nothing but itself.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
"""SIGUSR1 is what Slurm's --signal sends before the time limit."""


class GivenUp(BaseException):
    """The grace ended inside a step. No Exception: a part that catches those must not eat it."""


def is_unattended() -> bool:
    """Whether this is a job of Slurm without a terminal: it signals more than once, as a habit."""
    return "SLURM_JOB_ID" in os.environ and not (sys.stdin and sys.stdin.isatty())


def hold_back() -> None:
    """Let requests that come before training wait for it, instead of ending the process.

    For this thread and those that it starts; `Interrupts` lets them in.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, REQUESTS)


class Interrupts:
    """Context in which the first request sets `requested` and a second one kills.

    `stop_after_s` counts from the start of the process's training; the run stops before the first
    step that would probably not end in time. `grace_s` counts from the request, None = no limit.
    Without `insisting` a second signal is no person who insists, and changes nothing.
    """

    def __init__(
        self,
        announce: Callable[[str], None],
        stop_after_s: float | None = None,
        grace_s: float | None = None,
        insisting: bool = True,
    ):
        self.announce = announce
        self.grace_s = grace_s
        self.insisting = insisting
        self.requested = False
        self._start = time.monotonic()
        self._end = None if stop_after_s is None else self._start + stop_after_s
        self._longest_s = 0.0
        self._yields = False
        self._late = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in REQUESTS:
            self._previous[number] = signal.signal(number, self._receive)
        if self._end is not None or self.grace_s is not None:
            self._previous[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._alarm)
        if self._end is not None:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, self._end - time.monotonic()))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, REQUESTS)  # what `hold_back` kept comes now
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if signal.SIGALRM in self._previous:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @contextmanager
    def may_give_up(self) -> Generator[None, None, None]:
        """Inside the block GivenUp is raised when the grace has ended."""
        if self._late:
            raise GivenUp
        self._yields = True
        try:
            yield
        finally:
            self._yields = False

    def ask(self, message: str) -> None:
        """Ask to stop after this step; from any thread, any number of times."""
        self._request(message)

    def step_ended(self, seconds: float) -> None:
        """Ask to stop if another step as long as the longest one would pass the time limit."""
        self._longest_s = max(self._longest_s, seconds)
        if self._end is not None and time.monotonic() + self._longest_s >= self._end:
            self._request("run.stop_after is nearly over: stopping with a checkpoint")

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if not self.requested:
            again = " (again: stop at once)" if self.insisting else ""
            self._request(f"stopping after this step, with a checkpoint{again}")
        elif self.insisting and number != signal.SIGUSR1:  # a warning may come twice
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    def _request(self, message: str) -> None:
        if not self.requested:
            self.requested = True
            self.announce(message)
            if self.grace_s is not None:
                signal.setitimer(signal.ITIMER_REAL, max(0.001, self.grace_s))

    def _alarm(self, number: int, frame: FrameType | None) -> None:
        if not self.requested:  # run.stop_after passed inside a step longer than all before
            self._request("run.stop_after is over: stopping after this step, with a checkpoint")
            return
        self._late = True
        if self._yields:
            self._yields = False
            raise GivenUp
