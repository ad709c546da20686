"""What the sandbox is asked to do, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

LoadStatus = Literal[
    "ok",
    "compile_error",
    "load_error",
    "no_entry_point",
    "test_error",
    "timeout",
    "memory",
    "crashed",
]
CallStatus = Literal["returned", "raised", "timeout", "memory", "bad_value", "crashed"]
TestStatus = Literal["passed", "failed", "raised", "timeout", "memory", "bad_value", "crashed"]
StdioStatus = Literal[
    "finished", "exited", "raised", "timeout", "memory", "output_limit", "crashed"
]


@dataclass(frozen=True, kw_only=True)
class CallJob:
    """Load a program and call one of its functions on several inputs, one after the other."""

    program: str
    """Python source."""
    entry_point: str
    """Name of the function."""
    calls: tuple[tuple[Any, ...], ...]
    """Positional arguments of each call: None, bool, int, float, str, bytes and containers."""
    time_limit_s: float | None = None
    """CPU seconds of this program; None takes the settings' limit."""


@dataclass(frozen=True, kw_only=True)
class CallResult:
    """What one call did."""

    status: CallStatus
    """`returned`, or why there is no value."""
    value: Any = None
    """The returned value, rebuilt from exact builtin types."""
    message: str = ""
    """For people; at most a few hundred characters."""


@dataclass(frozen=True, kw_only=True)
class CallReport:
    """What a program did. It never stops the run, whatever the program tried."""

    status: LoadStatus
    """`ok`: it was loaded and answered every call; otherwise the first thing that ended it."""
    message: str
    """Why, if not ok."""
    results: tuple[CallResult, ...]
    """One per call, also for those that were never reached."""


@dataclass(frozen=True, kw_only=True)
class ProgramJob:
    """Run test code against a program. The two live in different processes.

    The test code sees `candidate` (and a function named like the entry point), which forwards
    each call through the trusted process; the program sees inputs, one at a time, and no test.
    """

    program: str
    """Python source under test."""
    entry_point: str
    """Name of the function under test."""
    setup: str
    """Test code executed once, for example the definition of `check`."""
    tests: tuple[str, ...]
    """Test statements, each judged on its own: `check(candidate)` or `assert f(1) == 2`."""
    time_limit_s: float | None = None
    """CPU seconds of the program, and of the test code; None takes the settings' limit."""


@dataclass(frozen=True, kw_only=True)
class TestResult:
    """What one test statement did."""

    __test__ = False

    status: TestStatus
    """`passed`, `failed` (an assertion), or what went wrong."""
    message: str = ""
    """For people; at most a few hundred characters."""


@dataclass(frozen=True, kw_only=True)
class ProgramReport:
    """What the test code found."""

    status: LoadStatus
    """`ok` if the program was loaded and lived to the end."""
    message: str
    """Why, if not ok."""
    results: tuple[TestResult, ...]
    """One per test, also for those that were never reached."""


@dataclass(frozen=True, kw_only=True)
class StdioJob:
    """Run a whole program once for each input: text on standard input, text on standard output.

    Each run is a process of its own. Expected outputs stay with whoever compares.
    """

    program: str
    """Python source; it is executed as `__main__`."""
    inputs: tuple[str, ...]
    """What the program finds on its standard input, one run for each."""
    time_limit_s: float | None = None
    """CPU seconds of one run; None takes the settings' limit."""
    max_timeouts: int = 2
    """After so many runs that exceeded their time the rest is not run and counts as `timeout`."""


@dataclass(frozen=True, kw_only=True)
class StdioResult:
    """What one run did."""

    status: StdioStatus
    """`finished`: it ended with exit code 0; otherwise what went wrong."""
    output: str = ""
    """What it printed, as far as the limit allows, whatever the status."""
    message: str = ""
    """For people; at most a few hundred characters."""


@dataclass(frozen=True, kw_only=True)
class StdioReport:
    """What a program did with its inputs."""

    status: LoadStatus
    """`ok` if it was run on every input, however that ended; otherwise why it was not."""
    message: str
    """Why, if not ok."""
    results: tuple[StdioResult, ...]
    """One per input, also for those that were never reached."""
