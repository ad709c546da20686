"""Games of gem-llm, which have gymnasium's interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from selfdistill_cli.core.errors import ConfigError, did_you_mean
from selfdistill_cli.core.types import Task
from selfdistill_cli.envs.gymnasium.splits import tasks_by_seed
from selfdistill_cli.envs.gymnasium.world import CommandDomain, GymWorld
from selfdistill_cli.envs.packages import GEM
from selfdistill_cli.envs.textgame.settings import TextGameSettings


class GemWorld(GymWorld):
    """Solved if the last reward is 1."""

    def _send(self, command: str) -> None:
        self._total = 0.0
        super()._send(command)


class GemGames(CommandDomain):
    """One game, by seed."""

    def __init__(self, settings: TextGameSettings) -> None:
        """Keep the settings."""
        self._settings = settings
        self._id = settings.source.partition(":")[2]

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the games of a split; raises ConfigError."""
        return tasks_by_seed(self._settings.source, "Play the game.", split, self._settings)

    def world(self, task: Task, seed: int) -> GemWorld:
        """Return the game at its start; its dice are the task's."""
        del seed
        key = f"env.source={self._settings.source}"
        return GemWorld(self._make(key), task.meta["seed"], 1.0, key)

    def _make(self, key: str) -> Any:
        gem = GEM.load(key)
        known = GEM.load(key, "envs.registration").ENV_REGISTRY
        if self._id not in known:
            near = did_you_mean(self._id, known)
            raise ConfigError(f"{key}: gem has no such game{near}")
        try:
            return gem.make(self._id)
        except Exception as error:  # some games need data that is not there
            raise ConfigError(f"{key}: gem cannot make it: {error!s:.200}") from None
