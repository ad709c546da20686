"""The trusted side of a job: what is said to the confined processes, and what to make of it.

Dialogues are generators: they yield what they wait for, and one loop (`sandbox.drive`) drives
many of them in one thread. Everything that arrives from a confined process is treated as hostile.
"""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple

from selfdistill_cli.sandbox.inside import wire
from selfdistill_cli.sandbox.jobs import (
    CallJob,
    CallReport,
    CallResult,
    ProgramJob,
    ProgramReport,
    TestResult,
)
from selfdistill_cli.sandbox.running import Dead, Running
from selfdistill_cli.sandbox.showing import clean, show_call, show_result
from selfdistill_cli.sandbox.worker import Dialogue, Worker

LOAD_FAILURES = ("compile_error", "load_error", "no_entry_point", "memory")
ENDINGS = ("timeout", "memory", "crashed")
CALL_STATUSES = ("returned", "raised", "memory", "bad_value")
PROBLEMS = ("failed", "raised", "memory")
OWN_EXCEPTIONS = ("memory", "bad_value")
TESTER_BYTES = 16 << 20
"""Test code may put calls of this size, encoded: it is not hostile, but may have a mistake."""


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

    def call(
        self, arguments: list[Any], named: dict[str, Any]
    ) -> Dialogue[tuple[CallResult, dict[str, Any]]]:
        """Call with encoded arguments; return the result and the raw answer; raises Dead.

        The identifier is fresh and random, so an answer that was prepared before the question
        arrived, or a second answer to the last one, is recognised.
        """
        identifier = secrets.token_hex(8)
        self.send({"id": identifier, "args": arguments, "named": named})
        answer = yield from self.receive()
        status = answer.get("status")
        if answer.get("id") != identifier or status not in CALL_STATUSES:
            raise (yield from self.violation())
        if status != "returned":
            return CallResult(status=status, message=clean(answer.get("message"))), answer
        try:
            value = wire.decode(answer.get("value"), distrusted=True)
            return CallResult(status="returned", value=value), answer
        except wire.Costly as error:
            return CallResult(status="bad_value", message=str(error)), answer
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
            result, _ = yield from candidate.call(encoded, {})
            results.append(result)
        return CallReport(status="ok", message="", results=tuple(results))
    except Dead as dead:
        status = dead.status if dead.status in ENDINGS else "crashed"
        rest = CallResult(status=status, message=dead.message)
        results += [rest] * (len(job.calls) - len(results))
        return CallReport(status=dead.status, message=dead.message, results=tuple(results))
    finally:
        candidate.close()


class Called(NamedTuple):
    """A call that test code made: encoded arguments, and what became of it."""

    arguments: list[Any]
    named: dict[str, Any]
    result: CallResult


class Tester(Running):
    """Test code, which may put large calls."""

    frame_bytes = TESTER_BYTES

    def too_large(self) -> tuple[str, str]:
        """Return what is wrong with the test code; the candidate has no part in it."""
        return "test_error", f"the test code sent more than {TESTER_BYTES >> 20} MiB in one call"


class Examination:
    """Test code on one side, the candidate on the other, and the trusted process between."""

    def __init__(self, candidate: Candidate, tester: Tester, entry_point: str) -> None:
        """Join two conversations."""
        self._candidate, self._tester, self._name = candidate, tester, entry_point
        self._last: Called | None = None

    def run(self, test: str) -> Dialogue[TestResult]:
        """Run one test statement; raises Dead when one of the two processes is no more."""
        self._tester.send({"test": test})
        problem = yield from self.relay()
        return TestResult(status="passed") if problem is None else self._result(problem)

    def relay(self) -> Dialogue[list[str] | None]:
        """Forward calls until the tester is done; return its problem."""
        self._last = None
        while True:
            message = yield from self._tester.receive()
            arguments, named = message.get("call"), message.get("named")
            if type(arguments) is not list or type(named) is not dict:
                return (yield from self._problem(message))
            result, answer = yield from self._candidate.call(arguments, named)
            self._last = Called(arguments, named, result)
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
        last = self._last
        if last is not None and status == "raised" and last.result.status in OWN_EXCEPTIONS:
            status = last.result.status  # what the test raised is our own exception for it
        parts = [f"{line} failed" if status == "failed" else f"{line} raised {message}"]
        if last is not None:
            called = show_call(self._name, last.arguments, last.named)
            parts.append(f"{called} {show_result(last.result)}")
        return TestResult(status=status, message=clean("; ".join(parts)))  # type: ignore[arg-type]


def converse_program(
    worker: Worker, tester_worker: Worker, job: ProgramJob, limit_s: float
) -> Dialogue[ProgramReport]:
    """Run test code in one worker against the program in another; raises WorkerLost."""
    limit_s = job.time_limit_s or limit_s
    candidate, tester = Candidate(worker, limit_s), Tester(tester_worker, limit_s)
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
