"""Games that TextWorld makes, each made once and kept in a folder."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from selfdistill_cli.core.disk import writing
from selfdistill_cli.core.hints import HintKind
from selfdistill_cli.core.packages import own_random, seeded
from selfdistill_cli.core.types import Task
from selfdistill_cli.envs.agents.actions import Action
from selfdistill_cli.envs.files import cache_folder
from selfdistill_cli.envs.gymnasium.splits import tasks_by_seed
from selfdistill_cli.envs.gymnasium.world import CommandDomain, CommandWorld, done_by
from selfdistill_cli.envs.packages import TEXTWORLD
from selfdistill_cli.envs.textgame.settings import TextGameSettings

IDLE = ("look", "inventory", "examine ")
"""Commands that change nothing; they are possible, but not listed."""


def textworld() -> Any:
    """Import the package; raises ConfigError."""
    return TEXTWORLD.load("env.source=textworld")


class TextWorldGames(CommandDomain):
    """Games by seed; the sizes are `env.difficulty`'s."""

    def __init__(self, settings: TextGameSettings) -> None:
        """Keep the settings."""
        self._settings = settings
        own = settings.cache
        self._folder = cache_folder("textgame") if own is None else Path(own).expanduser()

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the games of a split, making those that are not there yet; ConfigError."""
        return tasks_by_seed("textworld", "Play the game.", split, self._settings)

    def world(self, task: Task, seed: int) -> TextWorldWorld:
        """Return the game at its start; nothing in it is random."""
        del seed
        return TextWorldWorld(self._file(task.meta["seed"]))

    def hint(self, kind: HintKind, task: Task, seed: int) -> str | None:
        """Return the walkthrough as an answer."""
        if kind != "answer":
            return None
        world = TextWorldWorld(self._file(task.meta["seed"]))
        return "; ".join(done_by(command).short() for command in world.walkthrough())

    def _file(self, seed: int) -> Path:
        """Return the game's file; it is made in another place and moved, so it is whole."""
        size = self._settings.difficulty
        objects = size.objects + size.containers + size.quest
        name = f"r{size.rooms}-o{objects}-q{size.quest}-{seed}"
        path = self._folder / name / "game.z8"
        if path.is_file():
            return path
        with writing(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            made = tempfile.mkdtemp(dir=self._folder, prefix=".making-")
        generator = textworld().generator
        options = textworld().GameOptions()
        options.seeds, options.nb_rooms, options.nb_objects = seed, size.rooms, objects
        options.quest_length, options.path = size.quest, os.path.join(made, "game.z8")
        with own_random(seeded(seed)):
            generator.compile_game(generator.make_game(options), options)
        try:
            os.rename(made, path.parent)
        except OSError:  # another process made the same game meanwhile
            shutil.rmtree(made, ignore_errors=True)
        return path


class TextWorldWorld(CommandWorld):
    """One game in TextWorld's interpreter."""

    def __init__(self, path: Path) -> None:
        """Start the interpreter."""
        infos = textworld().EnvInfos(
            admissible_commands=True, policy_commands=True, objective=True, description=True,
            won=True, lost=True, max_score=True, score=True,
        )  # fmt: skip
        with warnings.catch_warnings():  # the interpreter's own score, which is not read
            warnings.simplefilter("ignore")
            self._env = textworld().start(str(path), infos)
            self._closer = weakref.finalize(self, self._env.close)
            self._state = self._env.reset()
        self.said = _tidy(f"{self._state.objective}\n{self._state.description}")

    def _send(self, command: str) -> None:
        self._state, _, self.ended = self._env.step(" ".join(command.split()))
        self.said = _tidy(self._state.feedback)
        if self.ended:
            self._closer()

    def choices(self) -> Sequence[Action]:
        """Return the possible commands that change something."""
        commands = self._state.admissible_commands or ()
        return [done_by(command) for command in sorted(commands) if not command.startswith(IDLE)]

    def _plan(self) -> list[str]:
        return list(self._state.policy_commands or ())

    def facts(self) -> Mapping[str, Any]:
        """Return whether the game is won, and the share of its score."""
        highest = self._state.max_score or 1
        return {
            "success": float(bool(self._state.won)),
            "progress": min(1.0, max(0.0, (self._state.score or 0) / highest)),
            "lost": float(bool(self._state.lost)),
            "said": self.said,
        }

    def expert(self) -> Action | None:
        """Return the next command of TextWorld's own plan."""
        plan = self._plan()
        return done_by(plan[0]) if plan else None

    def walkthrough(self) -> list[str]:
        """Return TextWorld's plan from here."""
        return self._plan()


def _tidy(text: str | None) -> str:
    """Return the text without the status line, the prompt and empty lines."""
    lines = [line.strip() for line in (text or "").splitlines()]
    return "\n".join(line for line in lines if line and not line.startswith(">"))
