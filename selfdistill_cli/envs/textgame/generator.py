"""Makes a game of a kind from a seed. Every game can be solved, by construction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from selfdistill_cli.core.seeds import stream
from selfdistill_cli.envs.textgame import names
from selfdistill_cli.envs.textgame.game import APPLIANCES, Door, Fact, Game, Trade
from selfdistill_cli.envs.textgame.maps import OPPOSITE, Map
from selfdistill_cli.envs.textgame.names import Namer
from selfdistill_cli.envs.textgame.settings import DifficultySettings

PEOPLE = ("smith", "miller", "nurse", "clerk", "pilot")
MOST_ON_THE_FLOOR = 3


def generate(kind: str, split: str, number: int, difficulty: DifficultySettings) -> Game:
    """Return the game of a number; names come from the split's own words."""
    size = (difficulty.rooms, difficulty.containers, difficulty.objects, difficulty.quest)
    random = stream("textgame", split, kind, number, *size)
    return KINDS[kind](_Stage(random, Namer(split, random), difficulty, corridor=kind == "keys"))


class _Stage:
    """A map with containers, into which a kind puts its things."""

    def __init__(
        self,
        random: np.random.Generator,
        namer: Namer,
        difficulty: DifficultySettings,
        corridor: bool,
    ) -> None:
        self.random, self.namer, self.difficulty = random, namer, difficulty
        length = difficulty.quest + 1 if corridor else 1
        self.map = Map(random, namer).grow(difficulty.rooms, length, loops=not corridor)
        self.rooms = self.map.rooms
        self.containers = {
            namer.thing(names.CONTAINERS): room
            for room in self.several(self.rooms, difficulty.containers)
        }
        shut = random.random(len(self.containers)) < 0.7
        self.opened = frozenset(
            name for name, s in zip(self.containers, shut, strict=True) if not s
        )
        self.items: dict[str, str] = {}

    def one(self, values: Sequence[str]) -> str:
        return values[int(self.random.integers(len(values)))]

    def several(self, values: Sequence[str], count: int) -> list[str]:
        return [values[int(i)] for i in self.random.permutation(len(values))[:count]]

    def put(self, item: str, rooms: Sequence[str], but: str = "") -> str:
        """Put a thing on the floor or into a container of one of the rooms, not into `but`."""
        inside = [name for name, room in self.containers.items() if room in rooms and name != but]
        floor = [r for r in rooms if list(self.items.values()).count(r) < MOST_ON_THE_FLOOR]
        use_container = bool(inside) and (not floor or self.random.random() < 0.5)
        self.items[item] = self.one(inside if use_container else floor or list(rooms))
        return item

    def clutter(self, nouns: tuple[str, ...] = names.THINGS) -> list[str]:
        """Put the things that nobody needs somewhere."""
        return [
            self.put(self.namer.thing(nouns), self.rooms) for _ in range(self.difficulty.objects)
        ]

    def game(self, kind: str, request: str, goals: Sequence[Fact], **more: object) -> Game:
        start = str(more.pop("start", None) or self.one(self.rooms))
        order = self.several(list(self.items), len(self.items))
        return Game(
            kind=kind, request=request, goals=tuple(goals), start=start, exits=self.map.exits,
            items={item: self.items[item] for item in order}, containers=self.containers,
            opened=self.opened, **more,  # pyright: ignore[reportArgumentType]
        )  # fmt: skip


def _fetch(stage: _Stage) -> Game:
    """Bring things to containers."""
    goals: list[Fact] = []
    for _ in range(stage.difficulty.quest):
        target = stage.one(list(stage.containers))
        item = stage.put(stage.namer.thing(names.THINGS), stage.rooms, but=target)
        goals += [Fact("got", item, target), Fact("inside", item, target)]
    stage.clutter()
    parts = [f"put {goal.what} in {goal.other}" for goal in goals[1::2]]
    return stage.game("fetch", f"Your task: {', '.join(parts)}.", goals)


def _keys(stage: _Stage) -> Game:
    """Open door after door; each key lies before its door."""
    region, corridor = stage.map.region, stage.rooms[: stage.difficulty.quest + 1]
    doors: dict[tuple[str, str], Door] = {}
    goals: list[Fact] = []
    for place, (room, beyond) in enumerate(pairwise(corridor)):
        word = stage.namer.word()
        door = Door(f"{word} door", f"{word} key")
        direction = next(d for d, there in stage.map.exits[room].items() if there == beyond)
        doors[room, direction] = doors[beyond, OPPOSITE[direction]] = door
        near = stage.random.random() < 0.6
        before = [r for r in stage.rooms if region[r] == place or (region[r] < place and not near)]
        stage.put(door.key, before)
        goals.append(Fact("opened", door.name, door.key))
    last = len(corridor) - 1
    treasure = stage.namer.thing(names.TREASURES)
    stage.put(treasure, [room for room in stage.rooms if region[room] == last])
    stage.clutter()
    start = stage.one([room for room in stage.rooms if region[room] == 0])
    goals.append(Fact("hold", treasure))
    return stage.game("keys", f"Your task: take {treasure}.", goals, doors=doors, start=start)


def _recipe(stage: _Stage) -> Game:
    """Cook every ingredient with the right appliance, then make the dish."""
    kitchen = stage.one(
        [r for r in stage.rooms if r not in stage.containers.values()] or stage.rooms
    )
    recipe: dict[str, str] = {}
    for _ in range(stage.difficulty.quest):
        item = stage.put(stage.namer.thing(names.FOODS), stage.rooms)
        recipe[item] = stage.one(APPLIANCES)
    spare = stage.clutter(names.FOODS)
    dish = stage.namer.thing(names.DISHES)
    steps = [f"cook {item} with {where}" for item, where in recipe.items()]
    goals = [Fact("cooked", item, where) for item, where in recipe.items()]
    return stage.game(
        "recipe", f"Your task: {', '.join(steps)}, make {dish}.", [*goals, Fact("made", dish)],
        kitchen=kitchen, recipe=recipe, foods=frozenset([*recipe, *spare]), dish=dish,
    )  # fmt: skip


def _trade(stage: _Stage) -> Game:
    """Swap thing after thing, until somebody gives the treasure."""
    wanted = stage.put(stage.namer.thing(names.THINGS), stage.rooms)
    trades: dict[str, Trade] = {}
    goals: list[Fact] = []
    homes = stage.several(stage.rooms, stage.difficulty.quest)
    for place, room in enumerate(homes, start=1):
        nouns = names.TREASURES if place == len(homes) else names.THINGS
        gives, person = stage.namer.thing(nouns), stage.namer.thing(PEOPLE)
        trades[person] = Trade(person, room, wanted, gives)
        stage.items[gives] = person
        goals.append(Fact("given", wanted, person))
        wanted = gives
    stage.clutter()
    goals.append(Fact("hold", wanted))
    return stage.game("trade", f"Your task: get {wanted}.", goals, trades=trades)


KINDS: dict[str, Callable[[_Stage], Game]] = {
    "fetch": _fetch, "keys": _keys, "recipe": _recipe, "trade": _trade,
}  # fmt: skip
