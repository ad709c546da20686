"""What an environment that can validate its tasks says about each of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Problem = Literal["", "no_reference", "reference_fails", "tests_fail", "proves_nothing"]

MEANINGS: dict[Problem, str] = {
    "": "good",
    "no_reference": "without a reference: only a wrong program was tried",
    "reference_fails": "whose reference does not pass",
    "tests_fail": "whose tests fail by themselves",
    "proves_nothing": "whose tests pass for an obviously wrong answer",
}
"""What each problem is called in a report."""

GOOD: tuple[Problem, ...] = ("", "no_reference")
"""What is no reason to leave a task out."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One task and what is wrong with it, if anything."""

    task_id: str
    """The task."""
    line: int | None
    """Its line in the file of tasks, None for tasks that are built in."""
    problem: Problem
    """Empty if the reference passes and an obviously wrong answer does not."""
    status: str = ""
    """Of the test that failed first, for example `failed` or `timeout`."""
    message: str = ""
    """What it said."""


class Validates(Protocol):
    """An environment that can check its own tasks. Both methods are optional for an `Env`."""

    def validate(self, split: str | None) -> Iterable[Finding]:
        """Return one finding per task of a split, or of all; raises UserError, SandboxError."""
        ...

    def data_lines(self) -> Sequence[tuple[int, str]]:
        """Return number and text of the lines that the tasks come from; empty if there are none."""
        ...
