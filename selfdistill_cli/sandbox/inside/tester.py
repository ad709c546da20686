"""The test code's process: runs test statements against a proxy of the candidate.

The proxy sends each call to the trusted process, which asks the candidate's own process. Values
that come back are rebuilt from exact builtin types, so the candidate has no other way to reach
a test than by what it returns or raises.
"""

from __future__ import annotations

import builtins
import sys
import types
from typing import Any

from selfdistill_cli.sandbox.inside import wire

FILE = "<tests>"
# A test that iterates, `zip(map(candidate, inputs), expected)`, would take these for its end.
FLOW = ("StopIteration", "StopAsyncIteration", "GeneratorExit")


class CandidateError(Exception):
    """The candidate raised something that is not an ordinary builtin exception."""


class Proxy:
    """Stands for the candidate; a call travels to the candidate's own process."""

    def __init__(self, channel: int, name: str) -> None:
        """Keep the channel; `name` is what the test code may print."""
        self._channel, self.__name__ = channel, name

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """Return what the candidate returned, or raise what it raised."""
        call = [wire.encode(argument) for argument in args]
        keywords = {name: wire.encode(argument) for name, argument in named.items()}
        wire.send(self._channel, {"call": call, "named": keywords})
        answer = wire.receive(self._channel)
        if "value" in answer:
            return wire.decode(answer["value"])
        raise exception(answer["kind"], answer["message"])


def exception(kind: str, message: str) -> Exception:
    """Return the builtin exception of that name, or a `CandidateError` that names it."""
    made = getattr(builtins, kind, None)
    if not (isinstance(made, type) and issubclass(made, Exception)) or kind in FLOW:
        return CandidateError(message)
    try:
        return made(message.removeprefix(f"{kind}: "))
    except TypeError:
        return CandidateError(message)


def serve(channel: int, limit_bytes: int) -> None:
    """Run the set-up code, then each test statement that the trusted process sends."""
    request = wire.receive(channel)
    module = types.ModuleType("tests")
    sys.modules["tests"] = module
    proxy = Proxy(channel, request["entry_point"])
    problem = execute(request["setup"], module.__dict__)
    wire.send(channel, {"done": problem})
    module.__dict__.update({request["entry_point"]: proxy, "candidate": proxy})
    while True:
        statement = wire.receive(channel)["test"]
        problem = execute(statement, module.__dict__, request["setup"])
        wire.send(channel, {"done": problem})


def execute(source: str, namespace: dict[str, Any], setup: str = "") -> list[str] | None:
    """Run code; return None, or `[status, message, failing source line]`."""
    name = FILE if not setup else "<statement>"
    try:
        exec(compile(source, name, "exec", dont_inherit=True), namespace)
    except MemoryError as error:
        return ["memory", wire.describe(error), ""]
    except AssertionError as error:
        return ["failed", wire.describe(error), failing_line(error, source, setup)]
    except BaseException as error:
        return ["raised", wire.describe(error), failing_line(error, source, setup)]
    return None


def failing_line(error: BaseException, source: str, setup: str) -> str:
    """Return the innermost line of test code that was running, cut short."""
    texts = {FILE: setup or source, "<statement>": source}
    line, trace = "", error.__traceback__
    while trace is not None:
        lines = texts.get(trace.tb_frame.f_code.co_filename, "").splitlines()
        if 0 < trace.tb_lineno <= len(lines):
            line = lines[trace.tb_lineno - 1].strip()
        trace = trace.tb_next
    return line[: wire.MAX_MESSAGE]
