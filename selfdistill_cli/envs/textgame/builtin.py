"""The built-in games as tasks and worlds."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from selfdistill_cli.core.hints import HintKind
from selfdistill_cli.core.types import Message, Task
from selfdistill_cli.envs.agents.actions import Action, Tool
from selfdistill_cli.envs.agents.skills import PromptSkills, Skills
from selfdistill_cli.envs.agents.world import Reply
from selfdistill_cli.envs.gymnasium.splits import numbers
from selfdistill_cli.envs.textgame import rules
from selfdistill_cli.envs.textgame.game import Game, State
from selfdistill_cli.envs.textgame.generator import generate
from selfdistill_cli.envs.textgame.planner import next_command, walkthrough
from selfdistill_cli.envs.textgame.settings import TextGameSettings

game_of = functools.lru_cache(maxsize=2048)(generate)
SKILLS = {
    "fetch": "Search the rooms and open containers; take the thing, walk to the container that the "
    "task names, open it, put the thing in it.",
    "keys": "A key and its door share a word. Take every key, open the door that it fits, and go "
    "on behind it until you see the treasure.",
    "recipe": "Take the ingredients first, cook each one once with the appliance that the task "
    "names, and make the dish last; another appliance spoils it.",
    "trade": "Find who gives the treasure, see what they want, and ask the same of that thing, "
    "until you reach one that lies about; then swap your way back.",
}
BUILTIN_SKILLS = Skills(
    general=(
        "Read what is here before you act, and open what is closed.",
        "Go where you have not been; walk back only for a reason.",
        "Take what the task names as soon as you see it.",
    ),
    task={kind: (line,) for kind, line in SKILLS.items()},
)


class GameWorld:
    """One built-in game while it is played."""

    def __init__(self, game: Game) -> None:
        """Begin."""
        self.state = State(game)

    def begin(self) -> str:
        """Return what is seen first."""
        return rules.look(self.state)

    def tools(self) -> Sequence[Tool]:
        """Return what can be written."""
        return rules.tools_of(self.state)

    def choices(self) -> Sequence[Action]:
        """Return every possible command that changes something."""
        return [rules.as_action(command) for command in rules.commands(self.state)]

    def act(self, action: Action) -> Reply:
        """Do it; raises Malformed."""
        text = rules.do(self.state, rules.as_command(action))
        return Reply(text=text, done=self.state.lost or self.state.solved())

    def facts(self) -> Mapping[str, Any]:
        """Return success, the share of the quest that is done, and what is missing."""
        state = self.state
        missing = state.missing()
        return {
            "success": float(not missing and not state.lost),
            "progress": state.progress(),
            "kind": state.game.kind,
            "lost": float(state.lost),
            "missing": missing,
        }

    def expert(self) -> Action | None:
        """Return the next action of a plan from here."""
        command = next_command(self.state)
        return None if command is None else rules.as_action(command)


class BuiltinGames:
    """Games by number, kinds in turn."""

    def __init__(self, settings: TextGameSettings) -> None:
        """Keep the settings; reads no file."""
        self._settings = settings
        self._skills = PromptSkills(settings.prompt_skills, BUILTIN_SKILLS)

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the games of a split; raises ConfigError."""
        kinds = self._settings.kinds
        return [
            self._task(kinds[number % len(kinds)], words, number // len(kinds))
            for words, number in numbers(split, self._settings)
        ]

    def _task(self, kind: str, words: str, number: int) -> Task:
        meta = {"kind": kind, "words": words, "number": number}
        asked = Message(role="user", content=self._game(meta).request)
        messages = self._skills.added([asked], kind)
        return Task(id=f"{words} {kind} {number}", messages=messages, answer=None, meta=meta)

    def _game(self, meta: Mapping[str, Any]) -> Game:
        return game_of(meta["kind"], meta["words"], meta["number"], self._settings.difficulty)

    def world(self, task: Task, seed: int) -> GameWorld:
        """Return the game at its start; nothing in it is random."""
        del seed
        return GameWorld(self._game(task.meta))

    def hint(self, kind: HintKind, task: Task, seed: int) -> str | None:
        """Return the walkthrough, where things are, or how such games are played."""
        game = self._game(task.meta)
        if kind == "answer":
            made = walkthrough(State(game))
            return "; ".join(rules.as_action(command).short() for command in made)
        if kind == "evidence":
            return "; ".join(_whereabouts(game))
        return SKILLS[game.kind] if kind == "skill" else None

    def feedback(self, task: Task, outcome: Mapping[str, Any]) -> str | None:
        """Return what was still missing at the end."""
        lost = "An ingredient was spoiled. " if outcome.get("lost") else ""
        missing = outcome.get("missing") or ()
        return f"{lost}Still missing: {'; '.join(missing)}." if missing else None

    def without_skills(self, task: Task) -> tuple[Message, ...] | None:
        """Return the messages without the general skills, None without skills."""
        return self._skills.pruned(task.messages)


def _whereabouts(game: Game) -> list[str]:
    """Return where everything is that the quest needs."""
    needed = {goal.what for goal in game.goals} | {goal.other for goal in game.goals}
    told = [f"{item}: {_place(game, game.items[item])}" for item in game.items if item in needed]
    told += [f"{name}: {room}" for name, room in game.containers.items() if name in needed]
    return told + ([f"stove and oven: {game.kitchen}"] if game.kitchen else [])


def _place(game: Game, place: str) -> str:
    """Return a place with its room."""
    trade = game.trades.get(place)
    room = trade.room if trade else game.containers.get(place)
    return f"{place}, {room}" if room else place
