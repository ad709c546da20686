"""A text environment with the interface of gymnasium, as a world."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.core.hints import HintKind
from selfdistill_cli.core.packages import own_random, seeded
from selfdistill_cli.core.texts import readable
from selfdistill_cli.core.types import Message, Task
from selfdistill_cli.envs.agents.actions import Action, Tool, tool
from selfdistill_cli.envs.agents.world import Reply

DO = (tool("do", "Sends a command to the environment: do go north.", command="string"),)
ADMISSIBLE = ("admissible_commands", "admissible_actions", "valid_actions", "available_actions")
"""Names under which `info` may list what can be done."""


def done_by(command: str) -> Action:
    """Return the action that sends a command."""
    return Action(name="do", arguments={"command": command})


class CommandDomain:
    """What domains of other packages' games share: no skills, and their own words as feedback."""

    def hint(self, kind: HintKind, task: Task, seed: int) -> str | None:
        """Return nothing: the package tells no solution."""
        return None

    def feedback(self, task: Task, outcome: Mapping[str, Any]) -> str | None:
        """Return what the game said at the end, and its score."""
        said = str(outcome.get("said") or "").strip()
        return f"{said}\nNot solved; progress {outcome.get('progress', 0.0):.2f}.".strip()

    def without_skills(self, task: Task) -> tuple[Message, ...] | None:
        """Return None: there are none."""
        return None


class CommandWorld:
    """Texts in, texts out; subclasses fill `said` and `ended`."""

    said = ""
    """What the game said last."""
    ended = False
    """The game is over."""

    def begin(self) -> str:
        """Return what the game says first."""
        return self.said

    def tools(self) -> Sequence[Tool]:
        """Return the one tool: send a command."""
        return DO

    def choices(self) -> Sequence[Action]:
        """Return nothing: the game does not list what can be done."""
        return ()

    def expert(self) -> Action | None:
        """Return None: there is no expert."""
        return None

    def act(self, action: Action) -> Reply:
        """Send the command."""
        assert not self.ended, "an episode is used once"
        self._send(str(action.arguments["command"]))
        return Reply(text=self.said, done=self.ended)

    def _send(self, command: str) -> None:
        raise NotImplementedError


class GymWorld(CommandWorld):
    """Plays `reset(seed=)` and `step(text)`, which returns five values."""

    def __init__(self, env: Any, seed: int, success_reward: float | None, key: str) -> None:
        """Reset; raises ConfigError if the observation is no text. `key`: what errors name."""
        self._env, self._key, self._success_reward = env, key, success_reward
        self._random = seeded(seed)
        self._total, self._info = 0.0, {}
        with own_random(self._random):
            observation, info = env.reset(seed=seed)
        self._see(observation, info)

    def _see(self, observation: Any, info: Any) -> None:
        if not isinstance(info or {}, Mapping):
            raise ConfigError(f"{self._key}: info is {type(info).__name__}, expected a mapping")
        self._info = dict(info or {})
        if not isinstance(observation, str):
            raise ConfigError(
                f"{self._key}: the observation is {type(observation).__name__}, expected text; "
                "wrap the environment so that it says what is seen"
            )
        text = f"{observation.rstrip()}\n{self._info.get('suffix', '')}"
        self.said = readable(text).strip()

    def _send(self, command: str) -> None:
        with own_random(self._random):
            found = self._env.step(command)
        if not isinstance(found, tuple | list) or len(found) != 5:
            raise ConfigError(
                f"{self._key}: step returned {found!r:.60}, expected five values: text, reward, "
                "terminated, truncated, info"
            )
        observation, reward, terminated, truncated, info = found
        self._total += self._finite(reward, "the reward")
        self.ended = bool(terminated or truncated)
        self._see(observation, info)
        if self.ended:
            self._env.close() if hasattr(self._env, "close") else None

    def choices(self) -> Sequence[Action]:
        """Return what `info` says can be done."""
        for name in ADMISSIBLE:
            if self._info.get(name) is not None:
                return [done_by(str(command)) for command in self._info[name]]
        return ()

    def facts(self) -> Mapping[str, Any]:
        """Return success, the sum of rewards, and progress where `info` tells it."""
        success = self._success()
        told = self._finite(self._info.get("progress", success), "info['progress']")
        progress = min(1.0, max(0.0, told))
        return {
            "success": success, "progress": progress, "reward": self._total, "said": self.said
        }  # fmt: skip

    def _success(self) -> float:
        if self._success_reward is not None:
            return float(self._total >= self._success_reward)
        if self.ended and "success" not in self._info:
            raise ConfigError(
                f"{self._key}: the last info has no 'success'; set env.success_reward to the sum "
                "of rewards that means solved"
            )
        told = self._finite(self._info.get("success", 0.0), "info['success']")
        return min(1.0, max(0.0, told))

    def _finite(self, value: Any, name: str) -> float:
        """Return a number; raises ConfigError for what is none: nan would spoil a whole step."""
        try:
            found = float(value)
        except (TypeError, ValueError):
            found = math.nan
        if not math.isfinite(found):
            raise ConfigError(f"{self._key}: {name} is {value!r:.60}, expected a finite number")
        return found
