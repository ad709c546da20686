"""Any gymnasium-style text environment."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.core.hints import HintKind
from selfdistill_cli.core.types import Task
from selfdistill_cli.envs.agents.env import AgentEnv
from selfdistill_cli.envs.gymnasium.settings import GymnasiumSettings
from selfdistill_cli.envs.gymnasium.splits import SPLITS, tasks_by_seed
from selfdistill_cli.envs.gymnasium.world import CommandDomain, GymWorld
from selfdistill_cli.envs.packages import GYMNASIUM


class GymnasiumGames(CommandDomain):
    """One task a seed."""

    def __init__(self, settings: GymnasiumSettings) -> None:
        """Keep the settings; imports nothing yet."""
        self._settings = settings

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the tasks of a split; raises ConfigError."""
        return tasks_by_seed(self._settings.id, self._settings.request, split, self._settings)

    def world(self, task: Task, seed: int) -> GymWorld:
        """Return a new environment, reset with the task's seed."""
        del seed
        key = f"env.id={self._settings.id}"
        make = _maker(self._settings.id, key)
        try:
            env = make(**self._settings.arguments)
        except TypeError as error:
            raise ConfigError(f"env.arguments: {self._settings.id} refuses them: {error}") from None
        return GymWorld(env, task.meta["seed"], self._settings.success_reward, key)


def _maker(name: str, key: str) -> Callable[..., Any]:
    """Return what makes the environment of a name; raises ConfigError."""
    module, colon, factory = name.partition(":")
    if colon and factory.isidentifier():
        try:
            found = getattr(importlib.import_module(module), factory)
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"{key}: {error}; expected module:factory, importable from the current folder or "
                "the one beside --config-dir"
            ) from None
        return found
    gymnasium = GYMNASIUM.load(key)

    def make(**arguments: Any) -> Any:
        try:
            return gymnasium.make(name, **arguments)
        except gymnasium.error.Error as error:
            raise ConfigError(f"{key}: {error}; expected module:factory or a known id") from None

    return make


class GymnasiumEnv(AgentEnv):
    """Sends the agent's commands to the environment that `env.id` names."""

    name = "gymnasium"
    hints: frozenset[HintKind] = frozenset(
        {"feedback", "own_wrong_answer", "sibling", "meta_skill"}
    )
    splits: ClassVar[tuple[str, ...]] = SPLITS

    def __init__(self, settings: GymnasiumSettings) -> None:
        """Keep the settings."""
        super().__init__(settings, GymnasiumGames(settings))
