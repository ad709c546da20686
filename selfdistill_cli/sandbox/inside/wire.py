"""Values as type-tagged JSON, and frames on a socket. Never pickle: decoding runs no code.

Only exact builtin types travel (`type(x) is int`), so an object with a clever `__eq__` or a
subclass of int cannot leave the sandbox. Used on both sides of the wall.
"""

from __future__ import annotations

import json
import os
from typing import Any

MAX_DEPTH = 64
MAX_MESSAGE = 300
SMALL_INT = 1 << 63
HEADER = 4
MAX_KEYS, MAX_NUMBERS = 1000, 10_000
SAFE_KEY = 1 << 20

_dumps, _loads = json.dumps, json.loads
_read, _write = os.read, os.write


class Unsendable(ValueError):
    """The value holds something that is not an exact builtin type, or is nested too deeply."""


class Costly(ValueError):
    """The value could take the reader far longer to build than to receive."""


def encode(value: Any, depth: int = 0) -> Any:
    """Return JSON data for a value; raises `Unsendable`."""
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if -SMALL_INT < value < SMALL_INT else ["int", hex(value)]
    if kind is float:
        return value if value - value == 0.0 else ["float", repr(value)]
    if kind is complex:
        return ["complex", repr(value.real), repr(value.imag)]
    if kind is bytes:
        return ["bytes", value.hex()]
    if depth >= MAX_DEPTH:
        raise Unsendable(f"nested more than {MAX_DEPTH} deep")
    if kind is dict:
        pairs = [[encode(k, depth + 1), encode(v, depth + 1)] for k, v in value.items()]
        return ["dict", pairs]
    if kind in (list, tuple, set, frozenset):
        return [kind.__name__, [encode(item, depth + 1) for item in value]]
    raise Unsendable(f"a value of type {kind.__name__} cannot be compared")


def decode(data: Any, depth: int = 0, distrusted: bool = False) -> Any:
    """Return the value of JSON data made by `encode`; raises ValueError on anything else.

    Of a `distrusted` sender also what it may have chosen to be slow to build: raises `Costly`.
    """
    if data is None or type(data) in (bool, str, int, float):
        return data
    try:
        return _decode_tagged(depth, distrusted, *data)
    except Costly:
        raise
    except Exception as error:  # hostile data must not choose what the reader has to catch
        raise ValueError(f"malformed value: {type(error).__name__}") from None


def _decode_tagged(depth: int, distrusted: bool, tag: str, *body: Any) -> Any:
    if tag == "complex":
        real, imaginary = body
        return complex(float(real), float(imaginary))
    (content,) = body
    if tag == "int":
        return int(content, 16)
    if tag == "float":
        return float(content)
    if tag == "bytes":
        return bytes.fromhex(content)
    if depth >= MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    if tag == "dict":
        keys = [decode(key, depth + 1, distrusted) for key, _ in content]
        items = [decode(item, depth + 1, distrusted) for _, item in content]
        return dict(zip(_affordable(keys, distrusted), items, strict=True))
    maker = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[tag]
    items = [decode(item, depth + 1, distrusted) for item in content]
    return maker(_affordable(items, distrusted and tag in ("set", "frozenset")))


def _affordable(keys: list[Any], distrusted: bool) -> list[Any]:
    """Return keys of a hash table; raises `Costly` if they may have been chosen to collide.

    A table of n colliding keys takes time n * n. Hashes of texts cannot be foreseen. Small whole
    numbers have hashes of their own, so that it takes more of them; of other keys few suffice.
    """
    if distrusted and len(keys) > MAX_KEYS:
        others = [key for key in keys if type(key) is not str and type(key) is not bytes]
        small = sum(type(key) is int and -SAFE_KEY < key < SAFE_KEY for key in others)
        if len(others) - small > MAX_KEYS or small > MAX_NUMBERS:
            raise Costly(
                f"a set or dictionary with more than {MAX_KEYS} keys that are neither text nor "
                f"small whole numbers, or with more than {MAX_NUMBERS} of these"
            )
    return keys


def pack(message: Any) -> bytes:
    """Return one frame: a length in four bytes, then JSON."""
    body = _dumps(message).encode()
    return len(body).to_bytes(HEADER, "big") + body


def parse(body: bytes) -> Any:
    """Return the message of one frame's body; raises ValueError, also for hostile nesting."""
    try:
        return _loads(body)
    except RecursionError:
        raise ValueError("malformed frame: nested too deeply") from None


def send(channel: int, message: Any) -> None:
    """Write one frame to a file descriptor, waiting as long as it takes."""
    view = memoryview(pack(message))
    while view:
        view = view[_write(channel, view) :]


def receive(channel: int) -> Any:
    """Read one frame from a file descriptor; raises EOFError when the other side is gone."""
    return parse(_exactly(channel, int.from_bytes(_exactly(channel, HEADER), "big")))


def _exactly(channel: int, count: int) -> bytes:
    parts: list[bytes] = []
    while count:
        part = _read(channel, min(count, 1 << 16))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def describe(error: BaseException) -> str:
    """Return `Kind: text` of an exception, cut short; survives a hostile `__str__`."""
    try:
        text = str(error)
    except BaseException:
        text = "<no text>"
    kind = type(error).__name__
    return (f"{kind}: {text}" if text else kind)[:MAX_MESSAGE]
