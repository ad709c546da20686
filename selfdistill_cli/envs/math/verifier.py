"""Whether an answer is right: as text, as a number, or as an expression, with a hard limit."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import threading
import time
import weakref
from dataclasses import dataclass
from typing import Literal

from selfdistill_cli.core.errors import RunError
from selfdistill_cli.envs.math.answers import MAX_ANSWER, is_calculation, number, same
from selfdistill_cli.envs.packages import MATH_VERIFY

Verdict = Literal["right", "wrong", "too_long", "refused", "timeout", "error"]
"""`refused`: not in the grammar of what is compared; `error`: no expression, or it failed."""
VERDICTS: dict[str, Verdict] = {"equal": "right", "different": "wrong", "timeout": "timeout"}
MEMORY_MB = 2048
START_S = 120.0
WALL_FACTOR, WALL_EXTRA_S = 10.0, 5.0
"""The CPU limit ends a comparison; this many wall seconds do if the process gets no CPU."""
MAX_EXPRESSION, MAX_DEPTH, MAX_POWERS = 300, 12, 8
LETTERS = re.compile(r"[A-Za-z0-9\\{}()\[\]|^_.,:;+\-*/=<>!&%$ '°π∞√]*")
TOWER = re.compile(r"(?:\^|\*\*)[\s{(]*[^\s+\-=,;]{0,20}(?:\^|\*\*)")
LARGE = re.compile(r"(?:\^|\*\*)[\s{(+-]*[0-9.]{4}|[0-9)}]{4}\s*!|!\s*!|[0-9]{40}")


class Exact:
    """Equal text or equal numbers; needs no package."""

    def check(self, expected: str, given: str) -> Verdict:
        """Return `right`, `wrong` or `too_long`."""
        if len(given) > MAX_ANSWER:
            return "too_long"
        return "right" if same(expected, given) else "wrong"

    def close(self) -> None:
        """Nothing to close."""


class MathVerify:
    """The same, and expressions that math-verify finds equal, in a process of its own."""

    def __init__(self, time_limit_s: float) -> None:
        """Keep the limit; no process starts yet. Raises ConfigError without the package."""
        MATH_VERIFY.require("env.verifier=math_verify")
        self._time_limit_s = time_limit_s
        self._worker: _Worker | None = None
        self._lock = threading.Lock()

    def check(self, expected: str, given: str) -> Verdict:
        """Compare; may be called from any thread. Raises RunError if no process can start."""
        if len(given) > MAX_ANSWER:
            return "too_long"
        known = same(expected, given)
        if known is not None:
            return "right" if known else "wrong"
        if number(expected) is not None and is_calculation(given):
            return "wrong"
        if not (is_bounded(given) and is_bounded(expected)):
            return "refused"
        with self._lock:
            return self._ask(expected, given)

    def _ask(self, expected: str, given: str) -> Verdict:
        if self._worker is None:
            self._worker = _Worker()
        said = self._worker.ask(expected, given, self._time_limit_s)
        if said in ("timeout", "error"):
            self._worker.close()  # after a limit it is gone, after an error it may be damaged
            self._worker = None
        return VERDICTS.get(said, "error")

    def close(self) -> None:
        """Stop the process. May be called again."""
        with self._lock:
            if self._worker is not None:
                self._worker.close()
                self._worker = None


def is_bounded(text: str) -> bool:
    """Whether an expression is of a size and a kind that is worth comparing.

    Its letters are those of LaTeX and arithmetic: no quotes, no `__`, nothing that Python could
    run. No power of a power, no exponent, factorial or number of many digits. The limits of the
    process hold for what gets through.
    """
    if len(text) > MAX_EXPRESSION or not LETTERS.fullmatch(text) or "__" in text:
        return False
    if TOWER.search(text) or LARGE.search(text) or text.count("^") + text.count("**") > MAX_POWERS:
        return False
    depth = deepest = 0
    for letter in text:
        depth += (letter in "{([") - (letter in "})]")
        deepest = max(deepest, depth)
        if depth < 0:
            return False
    return depth == 0 and deepest <= MAX_DEPTH


@dataclass
class _Process:
    """What must be ended, kept apart from its owner so that a finalizer can hold it."""

    popen: subprocess.Popen[bytes]

    def end(self) -> None:
        self.popen.kill()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                pipe.close()


class _Worker:
    """One process of verify_worker."""

    def __init__(self) -> None:
        """Start it and wait until it is ready; raises RunError."""
        command = [sys.executable, "-m", "selfdistill_cli.envs.math.verify_worker", str(MEMORY_MB)]
        known = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        path = os.pathsep.join(part or os.getcwd() for part in sys.path)
        popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**known, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"},
            start_new_session=True,
            bufsize=0,
        )
        self._popen, self._left = popen, b""
        self._end = weakref.finalize(self, _Process(popen).end)
        if self._line(START_S) != b"ready":
            self.close()
            raise RunError(
                "env.verifier: the process of math_verify did not start within "
                f"{START_S:g} s; try env.verifier=exact"
            )

    def ask(self, expected: str, given: str, limit_s: float) -> str:
        """Return `equal`, `different`, `error` or `timeout`."""
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(json.dumps([expected, given, limit_s]).encode() + b"\n")
        except OSError:
            return "error"
        said = self._line(limit_s * WALL_FACTOR + WALL_EXTRA_S)
        if said is None:
            return "timeout"
        return said.decode() or "error"

    def _line(self, seconds: float) -> bytes | None:
        """Return the next line; None if time or the process ends first."""
        assert self._popen.stdout is not None
        end = time.monotonic() + seconds
        while b"\n" not in self._left:
            left = max(0.0, end - time.monotonic())
            ready, _, _ = select.select([self._popen.stdout], [], [], left)
            part = os.read(self._popen.stdout.fileno(), 4096) if ready else b""
            if not part:
                return None
            self._left += part
        line, _, self._left = self._left.partition(b"\n")
        return line

    def close(self) -> None:
        """End it. May be called again."""
        self._end()
