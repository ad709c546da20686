"""The trusted side of a job: what is said to the confined processes, and what to make of it.

Dialogues are generators: they yield what they wait for, and one loop (`sandbox.drive`) drives
many of them in one thread. Everything that arrives from a confined process is treated as hostile.
"""

from __future__ import annotations

import math
import re
import secrets
import signal
import time
from collections.abc import Sequence
from typing import Any

from selfdistill_cli.core.errors import SandboxError
from selfdistill_cli.core.texts import readable
from selfdistill_cli.sandbox.inside import wire
from selfdistill_cli.sandbox.jobs import (
    CallJob,
    CallReport,
    CallResult,
    ProgramJob,
    ProgramReport,
    TestResult,
)
from selfdistill_cli.sandbox.worker import (
    Channel,
    Dialogue,
    Garbage,
    Gone,
    Late,
    Worker,
)

UNCONFINED = (
    "a program's process ended before it was confined; the machine may be out of memory or "
    "processes; nothing was run"
)
LOAD_FAILURES = ("compile_error", "load_error", "no_entry_point", "memory")
ENDINGS = ("timeout", "memory", "crashed")
CALL_STATUSES = ("returned", "raised", "memory", "bad_value")
PROBLEMS = ("failed", "raised", "memory")
ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")


class Dead(Exception):
    """The confined process is no more: `status` says why, for a report."""

    def __init__(self, status: Any, message: str) -> None:
        """Keep the status and a message for people."""
        super().__init__(message)
        self.status, self.message = status, message


def clean(message: Any) -> str:
    """Return text of a hostile message: short, printable, and the same from run to run."""
    text = message if type(message) is str else ""
    return ADDRESS.sub("0x", readable(text))[: wire.MAX_MESSAGE]


class Running:
    """One confined process and the conversation with it."""

    def __init__(self, worker: Worker, limit_s: float) -> None:
        """Prepare; nothing runs before `open`."""
        self.worker = worker
        self._limit_s, self._cpu_s = limit_s, max(1, math.ceil(limit_s))
        self.channel: Channel | None = None
        self.deadline = math.inf

    def open(self, role: str, request: dict[str, Any], files: Sequence[int] = ()) -> Dialogue[None]:
        """Fork the process and send it its first message; raises WorkerLost."""
        self.channel = yield from self.worker.open(role, self._cpu_s, files)
        # Generous, because a busy machine must not change a verdict; the CPU limit is exact.
        self.deadline = time.monotonic() + 3.0 * self._limit_s + 1.0
        self.send(request)

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
        except Garbage:
            raise (yield from self._end("crashed", "malformed answer")) from None
        except Gone:
            raise (yield from self._end("", "")) from None

    def violation(self) -> Dialogue[Dead]:
        """End a process that does not keep to the protocol; return what to raise."""
        return (yield from self._end("crashed", "malformed answer"))

    def _end(self, status: str, message: str) -> Dialogue[Dead]:
        """Kill, bury and diagnose; raises SandboxError if it was never confined."""
        assert self.channel is not None
        confined = self.channel.confined
        self.close()
        report = yield from self.worker.settle()
        if not confined and not status:
            raise SandboxError(UNCONFINED)
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


class Candidate(Running):
    """A program under test, as a function oracle."""

    def load(self, program: str, entry_point: str) -> Dialogue[None]:
        """Load the program; raises Dead if it could not be loaded."""
        yield from self.open("oracle", {"program": program, "entry_point": entry_point})
        reply = yield from self.receive()
        status = reply.get("loaded")
        if status == "ok":
            return
        if status not in LOAD_FAILURES:
            raise (yield from self.violation())
        raise Dead(status, clean(reply.get("message")))

    def call(self, arguments: list[Any]) -> Dialogue[tuple[CallResult, dict[str, Any]]]:
        """Call with encoded arguments; return the result and the raw answer; raises Dead.

        The identifier is fresh and random, so an answer that was prepared before the question
        arrived, or a second answer to the last one, is recognised.
        """
        identifier = secrets.token_hex(8)
        self.send({"id": identifier, "args": arguments})
        answer = yield from self.receive()
        status = answer.get("status")
        if answer.get("id") != identifier or status not in CALL_STATUSES:
            raise (yield from self.violation())
        if status != "returned":
            return CallResult(status=status, message=clean(answer.get("message"))), answer
        try:
            return CallResult(status="returned", value=wire.decode(answer.get("value"))), answer
        except ValueError:
            raise (yield from self.violation()) from None


def converse_calls(worker: Worker, job: CallJob, limit_s: float) -> Dialogue[CallReport]:
    """Load the program and put the calls to it, one at a time; raises WorkerLost."""
    candidate = Candidate(worker, job.time_limit_s or limit_s)
    results: list[CallResult] = []
    try:
        yield from candidate.load(job.program, job.entry_point)
        for call in job.calls:
            encoded = [wire.encode(argument) for argument in call]
            result, _ = yield from candidate.call(encoded)
            results.append(result)
        return CallReport(status="ok", message="", results=tuple(results))
    except Dead as dead:
        status = dead.status if dead.status in ENDINGS else "crashed"
        rest = CallResult(status=status, message=dead.message)
        results += [rest] * (len(job.calls) - len(results))
        return CallReport(status=dead.status, message=dead.message, results=tuple(results))
    finally:
        candidate.close()


class Examination:
    """Test code on one side, the candidate on the other, and the trusted process between."""

    def __init__(self, candidate: Candidate, tester: Running, entry_point: str) -> None:
        """Join two conversations."""
        self._candidate, self._tester, self._name = candidate, tester, entry_point
        self._last, self._last_status = "", ""

    def run(self, test: str) -> Dialogue[TestResult]:
        """Run one test statement; raises Dead when one of the two processes is no more."""
        self._tester.send({"test": test})
        problem = yield from self.relay()
        return TestResult(status="passed") if problem is None else self._result(problem)

    def relay(self) -> Dialogue[list[str] | None]:
        """Forward calls until the tester is done; return its problem."""
        self._last, self._last_status = "", ""
        while True:
            message = yield from self._tester.receive()
            if type(message.get("call")) is not list:
                return (yield from self._problem(message))
            result, answer = yield from self._candidate.call(message["call"])
            self._last_status = result.status
            self._last = f"{show_call(self._name, message['call'])} {show_result(result)}"
            if result.status == "returned":
                self._tester.send({"value": answer["value"]})
            else:
                kind = answer.get("kind") if result.status == "raised" else "CandidateError"
                kind = kind if type(kind) is str else "CandidateError"
                self._tester.send({"kind": kind, "message": result.message})

    def _problem(self, message: dict[str, Any]) -> Dialogue[list[str] | None]:
        """Return what the tester says when it is done: None, or status, message and line."""
        done = message.get("done", ())
        if done is None:
            return None
        texts = type(done) is list and len(done) == 3 and all(type(part) is str for part in done)
        if not texts or done[0] not in PROBLEMS:
            raise (yield from self._tester.violation())
        return done

    def _result(self, problem: list[str]) -> TestResult:
        status, message, line = problem
        if status == "raised" and self._last_status in ("memory", "bad_value"):
            status = self._last_status  # what the test raised is our own exception for it
        parts = [f"{line} failed" if status == "failed" else f"{line} raised {message}"]
        if self._last:
            parts.append(self._last)
        return TestResult(status=status, message=clean("; ".join(parts)))  # type: ignore[arg-type]


def show_call(name: str, encoded: list[Any]) -> str:
    """Return `f(1, 'a')` for a call with encoded arguments, cut short."""
    try:
        shown = ", ".join(show(wire.decode(argument)) for argument in encoded)
    except ValueError:
        shown = "..."
    return f"{name}({shorten(shown)})"


def show_result(result: CallResult) -> str:
    """Return `returned 3`, `raised ValueError: x` and the like, cut short."""
    if result.status == "returned":
        return f"returned {shorten(show(result.value))}"
    if result.status == "raised":
        return f"raised {shorten(result.message)}"
    return result.message


def show(value: Any) -> str:
    """Return `repr` of a decoded value; an integer may have more digits than Python prints."""
    try:
        return repr(value)
    except ValueError:
        return "a number with thousands of digits"


def shorten(text: str, limit: int = 120) -> str:
    """Return the text, with an ellipsis in its middle if it is longer than `limit`."""
    half = (limit - 3) // 2
    return text if len(text) <= limit else f"{text[:half]}...{text[-half:]}"


def converse_program(
    worker: Worker, tester_worker: Worker, job: ProgramJob, limit_s: float
) -> Dialogue[ProgramReport]:
    """Run test code in one worker against the program in another; raises WorkerLost."""
    limit_s = job.time_limit_s or limit_s
    candidate, tester = Candidate(worker, limit_s), Running(tester_worker, limit_s)
    results: list[TestResult] = []
    try:
        yield from candidate.load(job.program, job.entry_point)
        yield from tester.open("tester", {"setup": job.setup, "entry_point": job.entry_point})
        examination = Examination(candidate, tester, job.entry_point)
        problem = yield from examination.relay()
        if problem is not None:
            raise Dead("test_error", f"the test code failed: {clean(problem[1])}")
        for test in job.tests:
            results.append((yield from examination.run(test)))
        return ProgramReport(status="ok", message="", results=tuple(results))
    except Dead as dead:
        status = dead.status if dead.status in ENDINGS else "crashed"
        rest = TestResult(status=status, message=dead.message)
        results += [rest] * (len(job.tests) - len(results))
        return ProgramReport(status=dead.status, message=dead.message, results=tuple(results))
    finally:
        candidate.close()
        tester.close()
