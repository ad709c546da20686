"""A whole program's process: text on standard input, text on standard output.

As with the oracle, nothing here is trusted by the other side: what counts is the exit code, which
the kernel reports, and what stands in the output file once the process is dead.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import types
from collections.abc import Callable
from typing import Any

from selfdistill_cli.sandbox.inside import wire

Problem = tuple[str, str]
"""Status and message."""


def serve(channel: int, limit_bytes: int) -> None:
    """Run the program that the trusted process sends, and end as Python would end it."""
    del limit_bytes  # what may be printed is a limit of the kernel's here
    code = 1
    try:
        code, problem = run(wire.receive(channel)["program"])
        if problem is not None:
            wire.send(channel, {"problem": list(problem)})
    finally:
        os._exit(code)


def run(source: str) -> tuple[int, Problem | None]:
    """Compile and run a program as `__main__`; return its exit code and what went wrong."""
    try:
        code = compile(source, "<program>", "exec", dont_inherit=True)
    except MemoryError as error:
        return 1, ("memory", wire.describe(error))
    except BaseException as error:
        return 1, ("compile_error", wire.describe(error))
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv[:] = ["program"]
    open_streams()
    status, problem = attempt(lambda: exec(code, module.__dict__))
    late_status, late_problem = attempt(lambda: finish(module))
    return status or late_status, problem or late_problem


def open_streams() -> None:
    """Give the program `sys.stdin` and `sys.stdout` as Python opens them for files."""
    kind: Any = {"encoding": "utf-8", "errors": "surrogateescape"}
    sys.stdin = sys.__stdin__ = open(0, **kind)  # noqa: SIM115 open to the end
    sys.stdout = sys.__stdout__ = open(1, "w", **kind)  # noqa: SIM115


def attempt(action: Callable[[], Any]) -> tuple[int, Problem | None]:
    """Do something of the program's; return the exit code that it leads to, and what is wrong."""
    try:
        action()
    except SystemExit as error:
        return exit_code(error)
    except MemoryError as error:
        return 1, ("memory", wire.describe(error))
    except BaseException as error:
        return 1, ("raised", wire.describe(error))
    return 0, None


def exit_code(error: SystemExit) -> tuple[int, Problem | None]:
    """Return the exit code of `sys.exit(...)`: a text is printed by Python, and means 1."""
    if error.code is None:
        return 0, None
    if isinstance(error.code, int):
        return error.code & 0xFF, None
    return 1, ("exited", wire.describe(error))


def finish(module: types.ModuleType) -> None:
    """Do what Python does at its end: wait for threads, functions of atexit, flush, finalizers."""
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    flush(sys.stdout)
    module.__dict__.clear()
    with contextlib.suppress(ValueError):  # detached: whoever did it flushed the file below
        flush(sys.__stdout__)


def flush(stream: Any) -> None:
    """Write what was printed and is still in a buffer."""
    if stream is not None and not getattr(stream, "closed", False):
        stream.flush()
