"""The world of a task with state: calls change it, and what it is at the end decides."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from selfdistill_cli.core.texts import readable
from selfdistill_cli.envs.agents.actions import Action, Malformed, Tool, check
from selfdistill_cli.envs.agents.world import Reply
from selfdistill_cli.envs.tools.calculator import ToolError
from selfdistill_cli.envs.tools.state import differences, same_answer, shown
from selfdistill_cli.envs.tools.toolbox import ENDING, run

MOST_LINES = 8


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a world is made from."""

    tools: Sequence[Tool]
    """What the agent can call, without `done` and `answer`."""
    functions: Mapping[str, Callable[..., Any]]
    """What runs, by the tool's name."""
    state: Any
    """The initial state; never changed."""
    goal: Any | None
    """What the state must be at the end, None if it does not count."""
    answer: Any | None
    """The right answer, None if none is asked for."""
    grade: Callable[[Any, Any], float] | None
    """A user's own check of (state, answer), from 0 to 1."""
    calls: Sequence[Action]
    """An expert's calls, the ending included; empty if unknown."""
    list_choices: Callable[[int], Sequence[Action]]
    """The admissible calls after so many of the expert's."""


def guarded(function: Callable[..., Any], state: Any, action: Action) -> str:
    """Run a tool; raises ToolError with what the agent is told if it cannot be done."""
    try:
        return run(function, state, action)
    except ToolError:
        raise
    except (Exception, SystemExit) as error:  # a user's function may raise anything
        raise ToolError(f"{type(error).__name__}: {error!s:.200}") from None


class StatefulWorld:
    """One episode."""

    def __init__(self, setup: Setup) -> None:
        """Start from a copy of the initial state."""
        self._setup = setup
        self._state = copy.deepcopy(setup.state)
        self._tools = (*setup.tools, *ENDING)
        self._ended, self._answer = False, None
        self._calls, self._failed, self._place = 0, 0, 0
        self._to_do = 0 if setup.goal is None else len(differences(setup.state, setup.goal))

    def begin(self) -> str:
        """Return nothing: the request says it all."""
        return ""

    def tools(self) -> Sequence[Tool]:
        """Return the task's tools and how to end."""
        return self._tools

    def choices(self) -> Sequence[Action]:
        """Return the calls of the short list."""
        return self._setup.list_choices(self._place)

    def act(self, action: Action) -> Reply:
        """Do a call; one that cannot be done is told so and changes nothing built in."""
        self._follow(action)
        if action.name in ("done", "answer"):
            self._ended, self._answer = True, action.arguments.get("text")
            return Reply(text="over", done=True)
        self._calls += 1
        try:
            text = guarded(self._setup.functions[action.name], self._state, action)
        except ToolError as error:
            self._failed += 1
            text = f"Error: {error}"
        return Reply(text=text)

    def _follow(self, action: Action) -> None:
        expected = self.expert()
        if expected is not None and action.call() == expected.call():
            self._place = min(self._place + 1, len(self._setup.calls) - 1)

    def expert(self) -> Action | None:
        """Return the next of the expert's calls."""
        return self._setup.calls[self._place] if self._setup.calls else None

    def facts(self) -> Mapping[str, Any]:
        """Return success, progress (share of the needed changes that are there), counts, and
        what is wrong."""
        goal = self._setup.goal
        wrong = [] if goal is None else differences(self._state, goal)
        progress = max(0.0, 1 - len(wrong) / max(1, self._to_do))
        problems = wrong[:MOST_LINES] + self._problems_with_the_end()
        success = 0.0 if problems else self._graded()
        if success < 1 and not problems:
            problems = ["the check of the task did not pass"]
        return {
            "success": success,
            "progress": progress if self._to_do else success,
            "calls": self._calls,
            "failed_calls": self._failed,
            "difference": problems,
        }

    def _problems_with_the_end(self) -> list[str]:
        if not self._ended:
            return ["the episode was not ended by done or answer"]
        right = self._setup.answer
        if right is None or same_answer(self._answer, right):
            return []
        given = "missing" if self._answer is None else readable(shown(self._answer))
        return [f"answer: is {given}, should be {shown(right)}"]

    def _graded(self) -> float:
        """Return what the user's check says, 1 if there is none; asked at the end alone."""
        return 1.0 if self._setup.grade is None else self._setup.grade(self._state, self._answer)


def call_fits(action: Action, tools: Sequence[Tool]) -> str | None:
    """Return why a call does not fit the tools or the endings, None if it does."""
    try:
        check(action, [*tools, *ENDING])
    except Malformed as error:
        return str(error)
    return None
