"""What a kind of task supplies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from selfdistill_cli.envs.agents.actions import Action
from selfdistill_cli.envs.tools.drawing import Draw
from selfdistill_cli.envs.tools.toolbox import State

Case = Mapping[str, Any]


def call(name: str, **arguments: Any) -> Action:
    """Return a call of a built-in tool."""
    return Action(name=name, arguments=arguments)


class Template:
    """A kind of task.

    `case` is drawn several times per task, into one state: for the request, and for decoys of the
    same shape, whose calls the list of admissible actions mixes with the right ones.
    """

    requests: ClassVar[tuple[str, ...]]
    """Wordings, with the names of a case in braces."""
    skill: ClassVar[str]
    """How tools are used here, without a value of a task."""
    num_calls: ClassVar[int]
    """Calls before the last one, which ends the episode."""

    @property
    def name(self) -> str:
        """What metrics and settings call it."""
        words = "".join(f"_{c.lower()}" if c.isupper() else c for c in type(self).__name__)
        return words.lstrip("_")

    def case(self, draw: Draw) -> Case:
        """Draw values, and put what they need into the initial state."""
        raise NotImplementedError

    def calls(self, case: Case, state: State) -> Sequence[Action]:
        """Return the calls that do what is asked, given the initial state."""
        raise NotImplementedError

    def answer(self, case: Case, state: State) -> Any:
        """Return the answer, None for a request that asks for none."""
        return None
