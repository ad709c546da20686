"""The candidate's process: loads one program and answers inputs, one at a time.

Nothing here is trusted by the other side: the candidate shares this process and may change all
of it. It gains nothing by that, because expected values never come in and verdicts are made
outside.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from selfdistill_cli.sandbox.inside import wire


def serve(channel: int, limit_bytes: int) -> None:
    """Answer the trusted process until it hangs up."""
    request = wire.receive(channel)
    status, message, function = load(request["program"], request["entry_point"])
    wire.send(channel, {"loaded": status, "message": message})
    if function is None:
        return
    while True:
        call = wire.receive(channel)
        answer = reply(function, call["args"], call["named"])
        wire.send(channel, bounded({"id": call["id"], **answer}, limit_bytes))


def bounded(frame: dict[str, Any], limit_bytes: int) -> dict[str, Any]:
    """Return the frame, or one that says that its value is too large."""
    try:
        if len(wire.pack(frame)) <= limit_bytes:
            return frame
    except MemoryError:
        pass
    text = f"the value is larger than env.sandbox.max_output_kb={limit_bytes // 1024}"
    return {"id": frame["id"], "status": "bad_value", "message": text}


def load(source: str, entry_point: str) -> tuple[str, str, Callable[..., Any] | None]:
    """Compile and execute a program as a module of its own; return status, message, function."""
    module = types.ModuleType("candidate")
    try:
        code = compile(source, "<program>", "exec", dont_inherit=True)
    except MemoryError as error:
        return "memory", wire.describe(error), None
    except BaseException as error:
        return "compile_error", wire.describe(error), None
    sys.modules["candidate"] = module
    try:
        exec(code, module.__dict__)
        function = module.__dict__.get(entry_point)
    except MemoryError as error:
        return "memory", wire.describe(error), None
    except BaseException as error:
        return "load_error", wire.describe(error), None
    if not callable(function):
        return "no_entry_point", f"the program defines no function {entry_point}", None
    return "ok", "", function


def reply(
    function: Callable[..., Any], arguments: list[Any], named: dict[str, Any]
) -> dict[str, Any]:
    """Call the function on decoded arguments and describe what happened."""
    try:
        value = function(
            *[wire.decode(argument) for argument in arguments],
            **{name: wire.decode(argument) for name, argument in named.items()},
        )
    except MemoryError as error:
        return {"status": "memory", "message": wire.describe(error)}
    except BaseException as error:
        kind = type(error).__name__
        return {"status": "raised", "message": wire.describe(error), "kind": kind}
    try:
        return {"status": "returned", "value": wire.encode(value)}
    except MemoryError as error:
        return {"status": "memory", "message": wire.describe(error)}
    except BaseException as error:
        return {"status": "bad_value", "message": wire.describe(error)}
