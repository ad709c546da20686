"""What a game is, and its state while it is played."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

CARRIED, GONE = "you", "gone"
"""Places of things that the player carries, and of those that are no more."""
APPLIANCES = ("stove", "oven")


class Command(NamedTuple):
    """A verb and one or two things: `put`, lamp, box."""

    verb: str
    what: str
    other: str = ""


class Fact(NamedTuple):
    """Something that can be true of a state; a quest is a sequence of them."""

    kind: Literal["hold", "got", "inside", "opened", "cooked", "made", "given"]
    what: str
    other: str = ""


class Door(NamedTuple):
    """A locked door between two rooms, and the key that opens it."""

    name: str
    key: str


class Trade(NamedTuple):
    """Somebody in a room who gives one thing for another."""

    person: str
    room: str
    wants: str
    gives: str


@dataclass(frozen=True, kw_only=True)
class Game:
    """A game before the first command. Rooms, things, containers and people have unique names."""

    kind: str
    """Which kind of quest."""
    request: str
    """What the player is asked to do."""
    goals: tuple[Fact, ...]
    """All of them true at once: solved."""
    start: str
    """The first room."""
    exits: Mapping[str, Mapping[str, str]]
    """Room to direction to the room that lies there."""
    items: Mapping[str, str]
    """Thing to its first place: a room, a container, or the person who gives it."""
    containers: Mapping[str, str]
    """Container to its room."""
    opened: frozenset[str]
    """Containers that are open from the start."""
    doors: Mapping[tuple[str, str], Door] = field(default_factory=dict)
    """(room, direction) to the door there; both sides are listed."""
    trades: Mapping[str, Trade] = field(default_factory=dict)
    """Person to what they trade."""
    kitchen: str = ""
    """The room of the appliances, empty for none."""
    recipe: Mapping[str, str] = field(default_factory=dict)
    """Ingredient to the appliance that it is cooked with."""
    foods: frozenset[str] = frozenset()
    """What can be cooked, ingredients included."""
    dish: str = ""
    """What the recipe makes, empty for none."""


class State:
    """A game while it is played."""

    def __init__(self, game: Game) -> None:
        """Begin."""
        self.game = game
        self.room = game.start
        self.places: dict[str, str] = dict(game.items)
        self.open: set[str] = set(game.opened)
        self.cooked: dict[str, str] = {}
        self.made = False
        self.lost = False

    def carried(self) -> list[str]:
        """Return what the player carries."""
        return self.at(CARRIED)

    def at(self, place: str) -> list[str]:
        """Return the things at a place."""
        return [item for item, where in self.places.items() if where == place]

    def container_here(self) -> str | None:
        """Return the container of this room."""
        for name, room in self.game.containers.items():
            if room == self.room:
                return name
        return None

    def people_here(self) -> list[Trade]:
        """Return who is in this room."""
        return [trade for trade in self.game.trades.values() if trade.room == self.room]

    def holds(self, fact: Fact) -> bool:
        """Whether the fact is true now."""
        where = self.places.get(fact.what)
        if fact.kind == "opened":
            return fact.what in self.open
        if fact.kind == "cooked":
            return self.cooked.get(fact.what) == fact.other
        if fact.kind == "made":
            return self.made
        if fact.kind == "given":
            return where == GONE
        places = {"hold": (CARRIED,), "got": (CARRIED, fact.other), "inside": (fact.other,)}
        return where in places[fact.kind]

    def solved(self) -> bool:
        """Whether the quest is done."""
        return all(map(self.holds, self.game.goals))

    def missing(self) -> list[str]:
        """Return what is still to be done, in words."""
        return [told(goal) for goal in self.game.goals if not self.holds(goal)]

    def progress(self) -> float:
        """Return the share of the quest's facts that are true."""
        return 1.0 - len(self.missing()) / len(self.game.goals)


def told(fact: Fact) -> str:
    """Return the fact as something to do."""
    return {
        "hold": f"take {fact.what}",
        "got": f"take {fact.what}",
        "inside": f"put {fact.what} in {fact.other}",
        "opened": f"open {fact.what}",
        "cooked": f"cook {fact.what} with {fact.other}",
        "made": f"make {fact.what}",
        "given": f"give {fact.what} to {fact.other}",
    }[fact.kind]
