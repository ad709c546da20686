"""Episodes of one or several attempts: what failed is shown, and the agent may try again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from selfdistill_cli.core.protocols import StepResult
from selfdistill_cli.core.types import Message, Task

MAX_LINE = 160
NOT_LOADED = ("compile_error", "load_error", "no_entry_point")


class Stepper(Protocol):
    """An environment that steps several episodes at once."""

    def step_many(
        self, episodes: Sequence[CodeEpisode], actions: Sequence[str]
    ) -> list[StepResult]: ...


class CodeEpisode:
    """Up to `attempts` answers to one task; it ends when all tests pass."""

    def __init__(self, env: Stepper, task: Task, attempts: int, shown_failures: int) -> None:
        """Bind a task."""
        self.task = task
        self._env, self._attempts, self._shown = env, attempts, shown_failures
        self._passed: list[int] = []

    def step(self, action: str) -> StepResult:
        """Grade the answer."""
        return self._env.step_many([self], [action])[0]

    def after(self, graded: Mapping[str, Any]) -> StepResult:
        """Note the outcome of one more attempt and say how the episode goes on.

        The outcome is the last attempt's, with `attempts` (made), `attempts_allowed` and
        `passed_by_attempt`. It stands in every result, so that an episode that is cut by a limit
        keeps what was graded.
        """
        self._passed.append(graded["passed"])
        outcome = {
            **graded,
            "attempts": len(self._passed),
            "attempts_allowed": self._attempts,
            "passed_by_attempt": list(self._passed),
        }
        solved = graded["passed"] == graded["total"]
        if solved or len(self._passed) >= self._attempts:
            return StepResult(done=True, outcome=outcome)
        said = Message(role="user", content=feedback(graded, self._shown))
        return StepResult(observation=(said,), done=False, outcome=outcome)


def feedback(graded: Mapping[str, Any], shown: int) -> str:
    """Return how many tests passed and the first `shown` different messages of failed ones.

    A program that could not be loaded has one message: why.
    """
    failed = [test["message"] for test in graded["tests"] if test["status"] != "passed"]
    failed = [graded["error"]] if graded["status"] in NOT_LOADED else failed
    lines = [one_line(message) for message in dict.fromkeys(failed)][:shown]
    head = f"Tests passed: {graded['passed']} of {graded['total']}."
    return "\n".join([head, *(line for line in lines if line), "Try again."])


def one_line(message: str) -> str:
    """Return the message without line breaks, with an ellipsis in its middle if it is long."""
    text, half = " ".join(message.split()), (MAX_LINE - 3) // 2
    return text if len(text) <= MAX_LINE else f"{text[:half]}...{text[-half:]}"
