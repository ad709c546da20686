"""Environments run in a thread of their own, so that one that hangs costs its own episode."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

POLL_S = 0.02


class Overdue(BaseException):
    """Raised inside an environment that ran too long; no `except Exception` stops it."""


class EnvTimeout(Exception):
    """An environment ran longer than its limit."""


@dataclass(kw_only=True)
class Job:
    """One call of an environment."""

    call: Callable[[], Any]
    """What to do."""
    cpu_left_s: float
    """CPU seconds that its episode has left."""
    result: Any = None
    """What it returned, or the exception that it raised."""
    cpu_s: float = 0.0
    """CPU seconds that it used."""


@dataclass
class _Worker:
    """A thread that does jobs in order. Only the thread writes `done`."""

    jobs: Sequence[Job]
    started_s: float = 0.0
    started_cpu_s: float = 0.0
    done: int = 0
    finished: threading.Event = field(default_factory=threading.Event)

    def start(self) -> threading.Thread:
        thread = threading.Thread(target=self._work, name="environment", daemon=True)
        self.started_s = time.monotonic()
        thread.start()
        return thread

    def _work(self) -> None:
        try:
            for job in self.jobs:
                self.started_s, self.started_cpu_s = time.monotonic(), time.thread_time()
                try:
                    result: Any = job.call()
                except Exception as error:
                    result = error
                job.cpu_s = time.thread_time() - self.started_cpu_s
                job.result = result
                self.done += 1
        except Overdue:
            return
        finally:
            self.finished.set()


def run_jobs(jobs: Sequence[Job], wall_s: float) -> None:
    """Do the jobs one after the other and fill in their results.

    A job that runs for more than `wall_s` seconds, or uses more CPU than its episode has left,
    gets an EnvTimeout as its result. Its thread is told to end; one that does not listen (it
    sleeps in C, say) is left behind, and the rest goes on in a new thread.
    """
    left = list(jobs)
    while left:
        worker = _Worker(left)
        thread = worker.start()
        while not worker.finished.wait(POLL_S):
            number = worker.done
            reason = _overdue(worker, thread, left[number], wall_s) if number < len(left) else None
            if reason is not None and worker.done == number:
                left[number].result = EnvTimeout(reason)
                _interrupt(thread)
                left = left[number + 1 :]
                break
        else:
            left = left[worker.done :]  # not empty only if the thread itself was ended
            if left:
                left[0].result = EnvTimeout("the environment's thread was ended")
                left = left[1:]


def _overdue(worker: _Worker, thread: threading.Thread, job: Job, wall_s: float) -> str | None:
    """Return why a job has run too long, or None."""
    if time.monotonic() - worker.started_s > wall_s:
        return f"no reply within {wall_s:g} s (rollout.env_wall_s)"
    used = _cpu_s(thread) - worker.started_cpu_s
    if used > job.cpu_left_s:
        return "the episode's CPU time is used up (rollout.env_cpu_s)"
    return None


def _cpu_s(thread: threading.Thread) -> float:
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0))
    except OSError:  # it has just ended
        return 0.0


def _interrupt(thread: threading.Thread) -> None:
    """Raise Overdue in the thread at its next instruction of Python."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Overdue)
    )
