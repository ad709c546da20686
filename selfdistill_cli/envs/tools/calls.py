"""The world of a task whose calls are compared: nothing runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from selfdistill_cli.envs.agents.actions import Action, Tool
from selfdistill_cli.envs.agents.world import Reply
from selfdistill_cli.envs.tools.choices import Written
from selfdistill_cli.envs.tools.state import same_value, shown
from selfdistill_cli.envs.tools.toolbox import DONE

IGNORED = re.compile(r"[ ,./\-_*^]")


@dataclass(frozen=True, kw_only=True)
class Expected:
    """One call that should be made."""

    name: str
    """The tool."""
    allowed: Mapping[str, Sequence[Any]]
    """Values by parameter; any of them is right."""
    optional: Sequence[str]
    """Parameters that may be left out."""
    loose: bool
    """As the Berkeley leaderboard compares: without case and punctuation, and with alternatives
    for every entry of an object."""

    def fits(self, action: Action) -> bool:
        """Whether a call is this one."""
        if action.name != self.name:
            return False
        missing = self.allowed.keys() - action.arguments.keys() - set(self.optional)
        return not missing and all(
            any(self._same(value, right) for right in self.allowed.get(name, ()))
            for name, value in action.arguments.items()
        )

    def _same(self, found: Any, right: Any) -> bool:
        return same_loosely(found, right) if self.loose else same_value(found, right)

    def example(self) -> Action:
        """Return a call that fits, without what may be left out."""
        arguments: dict[str, Any] = {}
        for name, values in self.allowed.items():
            if name in self.optional:
                continue
            arguments[name] = _resolved(values[0]) if self.loose else values[0]
        return Written(name=self.name, arguments=arguments)


def same_loosely(found: Any, right: Any) -> bool:
    """Whether a value is right as the Berkeley function-calling leaderboard compares.

    Texts: without case, spaces and ,./-_*^ . Objects: `right` lists alternatives per key, and ""
    among them means that the key may be left out.
    """
    if isinstance(found, str) and isinstance(right, str):
        return _plain(found) == _plain(right)
    if isinstance(found, dict) and isinstance(right, dict):
        return all(
            any(same_loosely(found[key], value) for value in values)
            if key in found
            else "" in values
            for key, values in right.items()
        ) and all(key in right for key in found)
    if isinstance(found, list) and isinstance(right, list):
        return len(found) == len(right) and all(map(same_loosely, found, right))
    if isinstance(found, bool) or isinstance(right, bool):
        return found is right
    return found == right


def _plain(text: str) -> str:
    return IGNORED.sub("", text).lower().replace("'", '"')


def _resolved(value: Any) -> Any:
    """Return a value with the first alternative of every needed entry of its objects."""
    if isinstance(value, dict):
        return {k: _resolved(values[0]) for k, values in value.items() if "" not in values}
    return [_resolved(item) for item in value] if isinstance(value, list) else value


def unmatched(
    made: Sequence[Action], expected: Sequence[Expected]
) -> tuple[list[Action], list[Expected]]:
    """Return the calls that fit nothing and the expected ones that nothing fits, in any order.

    The largest matching (augmenting paths), as one call may fit several.
    """
    owner: dict[int, int] = {}

    def place(call: int, tried: set[int]) -> bool:
        for goal, wanted in enumerate(expected):
            if goal not in tried and wanted.fits(made[call]):
                tried.add(goal)
                if goal not in owner or place(owner[goal], tried):
                    owner[goal] = call
                    return True
        return False

    surplus = [made[call] for call in range(len(made)) if not place(call, set())]
    return surplus, [wanted for goal, wanted in enumerate(expected) if goal not in owner]


class CallsWorld:
    """One episode: calls are noted until `done`; with `single`, the first one ends it."""

    def __init__(
        self,
        tools: Sequence[Tool],
        expected: Sequence[Expected],
        choices: Sequence[Action],
        single: bool,
    ) -> None:
        """Start with no call made."""
        self._tools, self._expected = (*tools, DONE), expected
        self._choices, self._single = choices, single
        self._made: list[Action] = []
        self._ended = False

    def begin(self) -> str:
        """Return nothing: the request says it all."""
        return ""

    def tools(self) -> Sequence[Tool]:
        """Return the task's tools, and `done`."""
        return self._tools

    def choices(self) -> Sequence[Action]:
        """Return the calls that the task lists, if it does."""
        return self._choices

    def act(self, action: Action) -> Reply:
        """Note a call."""
        if action.name == DONE.name:
            self._ended = True
            return Reply(text="over", done=True)
        self._made.append(action)
        self._ended = self._single
        return Reply(text="noted", done=self._single)

    def expert(self) -> Action | None:
        """Return an expected call that was not made yet, or the end."""
        _, missing = unmatched(self._made, self._expected)
        return missing[0].example() if missing else Action(name=DONE.name)

    def facts(self) -> Mapping[str, Any]:
        """Return success, progress (share of the expected calls), and what is wrong."""
        surplus, missing = unmatched(self._made, self._expected)
        problems = [f"wrong call: {shown(action.short())}" for action in surplus]
        problems += [f"missing call: {shown(wanted.example().short())}" for wanted in missing]
        if not self._ended:
            problems.append("the episode was not ended by done")
        hits = len(self._expected) - len(missing)
        total = max(1, len(self._expected), len(self._made))
        right = hits / total if self._expected else float(not self._made)
        return {
            "success": float(not problems),
            "progress": right,
            "calls": len(self._made),
            "difference": problems,
        }
