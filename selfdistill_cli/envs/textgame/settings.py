"""Settings of the text games."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal

from selfdistill_cli.core.errors import FieldError, did_you_mean
from selfdistill_cli.core.settings import in_range
from selfdistill_cli.envs.agents.settings import AgentSettings

SOURCE = re.compile(r"builtin|textworld|(textarena|gem):\S+")


@dataclass(frozen=True, kw_only=True)
class DifficultySettings:
    """How large a game is."""

    rooms: int
    """Rooms of a game."""
    containers: int
    """Boxes, chests and the like; at most one a room."""
    objects: int
    """Things that the quest does not need."""
    quest: int
    """Parts of the quest: objects to bring, doors to open, ingredients to cook, swaps to make."""

    def __post_init__(self) -> None:
        in_range(self, 2, 60, "rooms")
        in_range(self, 1, self.rooms, "containers")
        in_range(self, 0, 40, "objects")
        in_range(self, 1, min(20, self.rooms - 1), "quest")


@dataclass(frozen=True, kw_only=True)
class TextGameSettings(AgentSettings):
    """Rooms, doors, things and a quest; the agent writes commands."""

    implementation: ClassVar[str] = "selfdistill_cli.envs.textgame.env:TextGameEnv"

    source: str
    """Whose games: `builtin`, `textworld`, `textarena:ID` or `gem:ID` (optional packages)."""
    kinds: list[Literal["fetch", "keys", "recipe", "trade"]]
    """Kinds of built-in games, in turn; other sources have their own."""
    difficulty: DifficultySettings
    """Size of built-in games and of those that TextWorld makes."""
    prompt_skills: str | None
    """Skills in the agent's own prompt: `builtin`, or a JSON file; null for none."""
    train_tasks: int
    """Games of the split train; the first quarter of them is the split demonstrations."""
    held_out_tasks: int
    """Games of validation, and as many of test."""
    cache: str | None
    """Folder of games that TextWorld made; null: the user's cache folder."""

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(self, 4, 1_000_000, "train_tasks")
        in_range(self, 1, 1_000_000, "held_out_tasks")
        if not self.kinds:
            raise FieldError("kinds", "[]", "at least one kind of game")
        if not SOURCE.fullmatch(self.source):
            known = ("builtin", "textworld", "textarena:ID", "gem:ID")
            near = did_you_mean(self.source, known)
            raise FieldError("source", repr(self.source), f"one of {', '.join(known)}{near}")
        if self.prompt_skills is not None and self.source != "builtin":
            expected = f"null with env.source={self.source}: skills are by kind of built-in game"
            raise FieldError("prompt_skills", self.prompt_skills, expected)
