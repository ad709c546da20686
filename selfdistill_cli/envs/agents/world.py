"""What an environment of several turns supplies: a domain of tasks, and worlds to act in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from selfdistill_cli.core.hints import HintKind
from selfdistill_cli.core.types import Message, Task
from selfdistill_cli.envs.agents.actions import Action, Tool


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What the world says to one action."""

    text: str
    """What the agent sees."""
    done: bool = False
    """The episode is over."""


class World(Protocol):
    """The state of one episode. A function of the task alone until the first action."""

    def begin(self) -> str:
        """What stands below the task's own words before the first action; may be empty."""
        ...

    def tools(self) -> Sequence[Tool]:
        """What the agent can call."""
        ...

    def choices(self) -> Sequence[Action]:
        """The admissible actions now, in a fixed order; empty where they cannot be listed."""
        ...

    def act(self, action: Action) -> Reply:
        """Do it. Raises Malformed for a call that cannot be done; arguments fit the schema."""
        ...

    def facts(self) -> Mapping[str, Any]:
        """What is known so far: `success` in [0, 1], and numbers and texts that rewards, hints
        and people read. Asked after every turn, so that a cut episode keeps the last answer."""
        ...

    def expert(self) -> Action | None:
        """What an expert does now, None where there is none."""
        ...


class Domain(Protocol):
    """Tasks and their worlds."""

    def tasks(self, split: str) -> Sequence[Task]:
        """Tasks of a split, each with the user's message; raises ConfigError, DataError."""
        ...

    def world(self, task: Task, seed: int) -> World: ...

    def hint(self, kind: HintKind, task: Task, seed: int) -> str | None:
        """What is known of the task without any attempt: answer, evidence, skill."""
        ...

    def feedback(self, task: Task, outcome: Mapping[str, Any]) -> str | None:
        """What a failed attempt did wrong, in the environment's words."""
        ...

    def without_skills(self, task: Task) -> tuple[Message, ...] | None:
        """The task's messages with less guidance (hint `pruned`), None if there is none to take."""
        ...
