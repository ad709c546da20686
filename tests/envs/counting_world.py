"""A small world for tests of what all agents share: count up to a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from selfdistill_cli.core.hints import HintKind
from selfdistill_cli.core.types import Message, Task
from selfdistill_cli.envs.agents.actions import Action, Malformed, Tool, tool
from selfdistill_cli.envs.agents.env import AgentEnv
from selfdistill_cli.envs.agents.settings import AgentSettings
from selfdistill_cli.envs.agents.world import Reply

TOOLS = (tool("add", "Adds a number.", number="integer"), tool("stop", "Ends."))
SETTINGS: dict[str, Any] = {
    "format": "tags", "max_steps": 6, "max_observation": 200,
    "instructions": None, "describe_tools": True, "show_choices": True,
}  # fmt: skip


class Counting:
    """The sum so far."""

    def __init__(self, goal: int) -> None:
        self.goal, self.sum, self.ended = goal, 0, False

    def begin(self) -> str:
        return f"sum {self.sum}"

    def tools(self) -> Sequence[Tool]:
        return TOOLS

    def choices(self) -> Sequence[Action]:
        return [*(Action(name="add", arguments={"number": n}) for n in (1, 2)), Action(name="stop")]

    def act(self, action: Action) -> Reply:
        if action.name == "stop":
            self.ended = True
            return Reply(text="over", done=True)
        if action.arguments["number"] > 9:
            raise Malformed("the number is larger than 9")
        self.sum += action.arguments["number"]
        return Reply(text=f"sum {self.sum}")

    def facts(self) -> Mapping[str, Any]:
        return {"success": float(self.ended and self.sum == self.goal), "sum": self.sum}

    def expert(self) -> Action | None:
        left = self.goal - self.sum
        return (
            Action(name="add", arguments={"number": min(2, left)})
            if left > 0
            else Action(name="stop")
        )


class CountingDomain:
    """Goals 1 to 8."""

    def tasks(self, split: str) -> Sequence[Task]:
        return [
            Task(
                id=f"{split} {goal}", answer=str(goal), meta={"goal": goal},
                messages=(Message(role="user", content=f"reach {goal}"),),
            )
            for goal in range(1, 9)
        ]  # fmt: skip

    def world(self, task: Task, seed: int) -> Counting:
        return Counting(task.meta["goal"])

    def hint(self, kind: HintKind, task: Task, seed: int) -> str | None:
        return task.answer if kind == "answer" else None

    def feedback(self, task: Task, outcome: Mapping[str, Any]) -> str | None:
        return f"the sum was {outcome['sum']}, not {task.meta['goal']}"

    def without_skills(self, task: Task) -> tuple[Message, ...] | None:
        return None


class CountingEnv(AgentEnv):
    name = "counting"
    hints = frozenset({"answer", "sibling", "own_wrong_answer", "feedback", "meta_skill"})

    def __init__(self, settings: AgentSettings) -> None:
        super().__init__(settings, CountingDomain())


def counting(**changes: Any) -> CountingEnv:
    """The environment with some settings changed."""
    return CountingEnv(AgentSettings(**{**SETTINGS, **changes}))
