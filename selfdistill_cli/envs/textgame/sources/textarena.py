"""Games for one player of TextArena."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from selfdistill_cli.core.errors import ConfigError, did_you_mean
from selfdistill_cli.core.packages import own_random, seeded
from selfdistill_cli.core.types import Task
from selfdistill_cli.envs.gymnasium.splits import tasks_by_seed
from selfdistill_cli.envs.gymnasium.world import CommandDomain, CommandWorld
from selfdistill_cli.envs.packages import TEXTARENA
from selfdistill_cli.envs.textgame.settings import TextGameSettings


class TextArenaGames(CommandDomain):
    """One game, by seed."""

    def __init__(self, settings: TextGameSettings) -> None:
        """Keep the settings."""
        self._settings = settings
        self._id = settings.source.partition(":")[2]

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the games of a split; raises ConfigError."""
        return tasks_by_seed(self._settings.source, "Play the game.", split, self._settings)

    def world(self, task: Task, seed: int) -> TextArenaWorld:
        """Return the game at its start; its dice are the task's."""
        del seed
        return TextArenaWorld(self._make(), task.meta["seed"], self._settings.source)

    def _make(self) -> Any:
        key = f"env.source={self._settings.source}"
        arena = TEXTARENA.load(key)
        known = TEXTARENA.load(key, "envs.registration").ENV_REGISTRY
        raw = f"{self._id}-raw"  # tells what is new, not the whole game again
        name = raw if raw in known else self._id
        if name not in known:
            near = did_you_mean(self._id, known)
            raise ConfigError(f"{key}: TextArena has no such game{near}")
        try:
            return arena.make(name)
        except Exception as error:  # some games need data or a service that is not there
            raise ConfigError(f"{key}: TextArena cannot make it: {error!s:.200}") from None


class TextArenaWorld(CommandWorld):
    """One game while it is played by its only player."""

    def __init__(self, env: Any, seed: int, source: str) -> None:
        """Begin; raises ConfigError for a game of several players."""
        self._env, self._random = env, seeded(seed)
        self._shown = ""
        self._reward = 0.0
        try:
            with own_random(self._random):
                env.reset(num_players=1, seed=seed)
                self.said = self._new()
        except Exception as error:
            raise ConfigError(
                f"env.source={source}: cannot be played by one player here: {error!s:.200}"
            ) from None

    def _new(self) -> str:
        """Return what the game said since the last time."""
        player, seen = self._env.get_observation()
        if player != 0:
            raise ValueError("it has several players")
        if isinstance(seen, str):
            self._shown, before = seen, self._shown
            return seen.removeprefix(before).strip()
        return "\n".join(text for speaker, text, *_ in seen if speaker != player).strip()

    def _send(self, command: str) -> None:
        with own_random(self._random):
            self.ended, _ = self._env.step(command)
            if not self.ended:
                self.said = self._new()
                return
            rewards, info = self._env.close()
        self._reward = float((rewards or {}).get(0, 0.0))
        self.said = str((info or {}).get(0, {}).get("reason") or "")

    def facts(self) -> Mapping[str, Any]:
        """Return whether the full reward was won, and which share of it."""
        share = min(1.0, max(0.0, self._reward))
        return {"success": float(share >= 1.0), "progress": share, "said": self.said}
