"""The trusted side of a whole program that reads standard input and writes standard output.

Input and output are files in memory without a name. The input is sealed, so that the program
cannot change it; the output is read when the process is dead, so that nobody writes to it any
more. What the program says of itself explains a failure, but never makes a success: the exit
code is the kernel's word.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from typing import Any

from selfdistill_cli.sandbox.jobs import StdioJob, StdioReport, StdioResult
from selfdistill_cli.sandbox.running import Dead, Running
from selfdistill_cli.sandbox.showing import clean
from selfdistill_cli.sandbox.worker import Dialogue, Garbage, Gone, Late, Worker

SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
PROBLEMS = ("compile_error", "exited", "memory", "raised")


class Files:
    """Standard input and output of one run."""

    def __init__(self, text: str) -> None:
        """Write and seal the input, and make an empty output."""
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        self.descriptors = (os.memfd_create("input", flags), os.memfd_create("output", flags))
        try:
            self._fill(memoryview(text.encode("utf-8", "surrogateescape")))
        except BaseException:
            self.close()
            raise

    def _fill(self, data: memoryview) -> None:
        source = self.descriptors[0]
        while data:
            data = data[os.write(source, data) :]
        os.lseek(source, 0, os.SEEK_SET)
        fcntl.fcntl(source, fcntl.F_ADD_SEALS, SEALS)

    def output(self, limit_bytes: int) -> tuple[str, bool]:
        """Return what was printed, up to a limit, and whether there was more."""
        data = os.pread(self.descriptors[1], limit_bytes + 1, 0)
        return data[:limit_bytes].decode("utf-8", "replace"), len(data) > limit_bytes

    def close(self) -> None:
        """Give the memory back."""
        for descriptor in self.descriptors:
            os.close(descriptor)


class Script(Running):
    """One run of a program."""

    def finish(self) -> Dialogue[Dead | None]:
        """Wait for its end, or make it; return what went wrong, None for exit code 0."""
        assert self.channel is not None
        note: dict[str, Any] = {}
        garbage = False
        try:
            note = yield from self.channel.receive(self.deadline)
        except (Gone, Late):
            pass
        except Garbage:
            garbage = True
        # A program may close the channel, which is not its business, and go on.
        by_itself = not garbage and (yield from self.worker.ended(self.deadline))
        self.close()
        report = yield from self.worker.settle()
        if garbage or report is None:
            return Dead("crashed", "malformed answer")
        if not by_itself:
            return Dead("timeout", "time limit exceeded")
        if report["status"] == 0:
            return None
        return explain(report["status"], note) or self.diagnose(report["status"], report["cpu_s"])


def explain(status: int, note: dict[str, Any]) -> Dead | None:
    """Return the program's own explanation of a nonzero exit code, if it is one."""
    if status < 0:
        return None
    problem = note.get("problem")
    if type(problem) is list and len(problem) == 2 and problem[0] in PROBLEMS:
        return Dead(problem[0], clean(problem[1]))
    return Dead("exited", f"the program ended with exit code {status}")


def converse_stdio(
    prepare: Callable[[], Dialogue[Worker]], job: StdioJob, limit_s: float, output_bytes: int
) -> Dialogue[StdioReport]:
    """Run a program once for each input; `prepare` gives a clean worker. Raises WorkerLost."""
    results: list[StdioResult] = []
    status, message = "ok", ""
    for text in job.inputs:
        result = yield from run_once(prepare, job, text, limit_s, output_bytes)
        if isinstance(result, Dead):
            status, message = result.status, result.message
            results += [StdioResult(status="crashed", message=message)] * len(job.inputs)
            break
        results.append(result)
        late = sum(result.status == "timeout" for result in results)
        if late >= job.max_timeouts and len(results) < len(job.inputs):
            status, message = "timeout", f"not run: {late} inputs before exceeded the time limit"
            results += [StdioResult(status="timeout", message=message)] * len(job.inputs)
            break
    kept = tuple(results[: len(job.inputs)])
    return StdioReport(status=status, message=message, results=kept)  # type: ignore[arg-type]


def run_once(
    prepare: Callable[[], Dialogue[Worker]],
    job: StdioJob,
    text: str,
    limit_s: float,
    output_bytes: int,
) -> Dialogue[StdioResult | Dead]:
    """Run a program on one input; return Dead if it does not compile."""
    worker = yield from prepare()
    files = Files(text)
    script = Script(worker, job.time_limit_s or limit_s)
    try:
        yield from script.open("stdio", {"program": job.program}, files.descriptors)
        dead = yield from script.finish()
        if dead is not None and dead.status == "compile_error":
            return dead
        output, more = files.output(output_bytes)
    finally:
        script.close()
        files.close()
    if more:
        told = f"it printed more than {output_bytes // 1024} KiB"
        return StdioResult(status="output_limit", output=output, message=told)
    if dead is None:
        return StdioResult(status="finished", output=output)
    return StdioResult(status=dead.status, output=output, message=dead.message)
