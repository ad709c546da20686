"""The sandbox: a pool of warm workers that run programs nobody has read."""

from __future__ import annotations

import logging
import os
import select
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from selfdistill_cli.core.errors import SandboxError
from selfdistill_cli.sandbox import levels
from selfdistill_cli.sandbox.dialogue import converse_calls, converse_program
from selfdistill_cli.sandbox.inside import wire
from selfdistill_cli.sandbox.jobs import (
    CallJob,
    CallReport,
    CallResult,
    ProgramJob,
    ProgramReport,
    StdioJob,
    StdioReport,
    StdioResult,
    TestResult,
)
from selfdistill_cli.sandbox.scripts import converse_stdio
from selfdistill_cli.sandbox.settings import SandboxSettings
from selfdistill_cli.sandbox.worker import Dialogue, Wait, Worker, WorkerLost

log = logging.getLogger(__name__)

Job = TypeVar("Job")
Report = TypeVar("Report")
T = TypeVar("T")
LOST = "its worker died twice"


class Seat:
    """A place in the pool: holds a worker, and replaces it when it is lost."""

    def __init__(self, launch: levels.Launch) -> None:
        """Keep how to start; nothing is started yet."""
        self._launch = launch
        self.worker: Worker | None = None

    def prepare(self) -> Dialogue[Worker]:
        """Return a worker that is alive, idle and clean; raises SandboxError."""
        if self.worker is not None:
            try:
                yield from self.worker.settle()
            except WorkerLost:
                self.close()
        if self.worker is None or self.worker.dirty or not self.worker.alive:
            self.close()
            self.worker = Worker(self._launch)
            yield from self.worker.ready()
        return self.worker

    def close(self) -> None:
        """Kill the worker, if any."""
        if self.worker is not None:
            self.worker.close()
            self.worker = None


class Sandbox:
    """Runs programs at the strongest level of isolation there is. Starts at first use.

    One thread: `workers` programs run at the same time, driven by one loop. Not for use by
    several threads at once.
    """

    def __init__(self, settings: SandboxSettings, quiet: bool = False) -> None:
        """Keep the settings; nothing is started. `quiet` is for whoever says the level itself."""
        self._settings, self._quiet = settings, quiet
        self._owner = os.getpid()
        self._seats: list[Seat] = []
        self._level = ""
        self._finalizer = weakref.finalize(self, _close, self._seats, self._owner)

    @property
    def level(self) -> str:
        """The level in force, for people. Starts the first worker."""
        self.start()
        return self._level

    def start(self) -> None:
        """Start at the strongest level that works; raises SandboxError with a remedy."""
        if self._owner != os.getpid():  # after a fork the workers are the parent's
            self._seats, self._owner = [], os.getpid()
            self._finalizer = weakref.finalize(self, _close, self._seats, self._owner)
        if self._seats:
            return
        problems: list[str] = []
        for level in levels.candidates(self._settings.level):
            try:
                launch = levels.launch(level, self._settings)
                self._seats.extend(self._try(launch))
                self._level = launch.description
                if level == "process" and not self._quiet:
                    log.warning(levels.WARNING)
                return
            except (SandboxError, OSError) as error:
                problems.append(f"{level}: {error} ({levels.REMEDY[level]})")
        raise SandboxError("programs cannot be isolated on this machine: " + "; ".join(problems))

    def _try(self, launch: levels.Launch) -> list[Seat]:
        # Two seats for each program: one for the candidate, one for test code, used on demand.
        seats = [Seat(launch) for _ in range(2 * max(1, self._settings.workers))]
        try:
            drive([seats[0].prepare()])
        except BaseException:
            seats[0].close()
            raise
        return seats

    def run_calls(self, jobs: Sequence[CallJob]) -> list[CallReport]:
        """Run call jobs, `workers` at a time; reports are in the order of the jobs.

        Raises SandboxError if isolation fails, and `Unsendable` (a ValueError) for arguments
        that cannot be sent; never because of anything a program does.
        """
        limit_s = self._settings.time_limit_s

        def converse(seats: Sequence[Seat], job: CallJob) -> Dialogue[CallReport]:
            worker = yield from seats[0].prepare()
            return (yield from converse_calls(worker, job, limit_s))

        def lost(job: CallJob) -> CallReport:
            result = CallResult(status="crashed", message=LOST)
            return CallReport(status="crashed", message=LOST, results=(result,) * len(job.calls))

        for job in jobs:
            for call in job.calls:
                wire.encode(list(call))
        return self._run(jobs, converse, lost)

    def run_programs(self, jobs: Sequence[ProgramJob]) -> list[ProgramReport]:
        """Run test code against programs, like `run_calls`."""
        limit_s = self._settings.time_limit_s

        def converse(seats: Sequence[Seat], job: ProgramJob) -> Dialogue[ProgramReport]:
            worker = yield from seats[0].prepare()
            tester = yield from seats[1].prepare()
            return (yield from converse_program(worker, tester, job, limit_s))

        def lost(job: ProgramJob) -> ProgramReport:
            result = TestResult(status="crashed", message=LOST)
            return ProgramReport(status="crashed", message=LOST, results=(result,) * len(job.tests))

        return self._run(jobs, converse, lost)

    def run_stdio(self, jobs: Sequence[StdioJob]) -> list[StdioReport]:
        """Run whole programs on standard inputs, like `run_calls`."""
        limit_s, output_bytes = self._settings.time_limit_s, self._settings.max_output_kb << 10

        def converse(seats: Sequence[Seat], job: StdioJob) -> Dialogue[StdioReport]:
            return (yield from converse_stdio(seats[0].prepare, job, limit_s, output_bytes))

        def lost(job: StdioJob) -> StdioReport:
            result = StdioResult(status="crashed", message=LOST)
            return StdioReport(status="crashed", message=LOST, results=(result,) * len(job.inputs))

        return self._run(jobs, converse, lost)

    def _run(
        self,
        jobs: Sequence[Job],
        converse: Callable[[Sequence[Seat], Job], Dialogue[Report]],
        lost: Callable[[Job], Report],
    ) -> list[Report]:
        self.start()
        reports: dict[int, Report] = {}
        queue = deque(range(len(jobs)))

        def lane(seats: Sequence[Seat]) -> Dialogue[None]:
            while queue:
                index = queue.popleft()
                try:
                    reports[index] = yield from twice(seats, jobs[index], converse)
                except WorkerLost:
                    reports[index] = lost(jobs[index])

        count = min(len(self._seats) // 2, len(jobs))
        try:
            drive([lane(self._seats[2 * i : 2 * i + 2]) for i in range(count)])
        except BaseException:  # a half-finished conversation cannot be picked up again
            self.close()
            raise
        return [reports[i] for i in range(len(jobs))]

    def close(self) -> None:
        """Kill all workers. May be called again; the next job starts new ones."""
        _close(self._seats, self._owner)
        self._seats.clear()


def twice(
    seats: Sequence[Seat], job: Job, converse: Callable[[Sequence[Seat], Job], Dialogue[Report]]
) -> Dialogue[Report]:
    """Run a job; if its worker dies, replace the worker and try once more."""
    try:
        return (yield from converse(seats, job))
    except WorkerLost:
        for seat in seats:
            seat.close()
        return (yield from converse(seats, job))


def drive(dialogues: Sequence[Dialogue[Any]]) -> None:
    """Run dialogues side by side until all are finished."""
    waits: dict[Generator[Wait, None, Any], Wait] = {}
    for dialogue in dialogues:
        _advance(dialogue, waits)
    while waits:
        poll = select.poll()
        for wait in waits.values():
            poll.register(wait.socket, select.POLLIN | (select.POLLOUT if wait.writing else 0))
        first = min(wait.deadline for wait in waits.values())
        ready = {number for number, _ in poll.poll(max(0.0, first - time.monotonic()) * 1000 + 1)}
        now = time.monotonic()
        for dialogue, wait in list(waits.items()):
            if wait.socket.fileno() in ready or now >= wait.deadline:
                _advance(dialogue, waits)


def _advance(dialogue: Dialogue[Any], waits: dict[Any, Wait]) -> None:
    try:
        waits[dialogue] = next(dialogue)
    except StopIteration:
        waits.pop(dialogue, None)


def _close(seats: list[Seat], owner: int) -> None:
    if os.getpid() == owner:
        for seat in seats:
            seat.close()
