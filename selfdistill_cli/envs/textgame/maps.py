"""Rooms on a grid, joined to each other."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from selfdistill_cli.envs.textgame.names import ROOMS, Namer

STEPS = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}
OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}
MOST_EXITS = 3


@dataclass
class Map:
    """Rooms by place on the grid; the first `corridor` of them form a line."""

    random: np.random.Generator
    namer: Namer
    exits: dict[str, dict[str, str]] = field(default_factory=dict)
    """Room to direction to room."""
    region: dict[str, int] = field(default_factory=dict)
    """Room to the place in the corridor from which it hangs."""
    at: dict[tuple[int, int], str] = field(default_factory=dict)
    """Place on the grid to room."""

    @property
    def rooms(self) -> list[str]:
        """All rooms, in the order in which they were added."""
        return list(self.exits)

    def grow(self, rooms: int, corridor: int, loops: bool) -> Map:
        """Add rooms; with `loops`, join a quarter of the neighbours that are not joined yet."""
        spot = (0, 0)
        self._add(spot, region=0)
        for place in range(1, corridor):
            direction = ("north", "east")[int(self.random.integers(2))]
            spot = self._branch(spot, direction, region=place)
        while len(self.exits) < rooms:
            self._grow_somewhere()
        if loops:
            self._close_loops()
        return self

    def _add(self, spot: tuple[int, int], region: int) -> str:
        room = self.namer.thing(ROOMS)
        self.at[spot] = room
        self.exits[room] = {}
        self.region[room] = region
        return room

    def _branch(self, spot: tuple[int, int], direction: str, region: int) -> tuple[int, int]:
        there = _beyond(spot, direction)
        self._add(there, region)
        self._join(spot, direction)
        return there

    def _join(self, spot: tuple[int, int], direction: str) -> None:
        first, second = self.at[spot], self.at[_beyond(spot, direction)]
        self.exits[first][direction] = second
        self.exits[second][OPPOSITE[direction]] = first

    def _grow_somewhere(self) -> None:
        free = [
            (spot, direction)
            for spot, room in self.at.items()
            if len(self.exits[room]) < MOST_EXITS
            for direction in STEPS
            if _beyond(spot, direction) not in self.at
        ]
        spot, direction = free[int(self.random.integers(len(free)))]
        self._branch(spot, direction, self.region[self.at[spot]])

    def _close_loops(self) -> None:
        for spot, room in self.at.items():
            for direction in ("north", "east"):
                other = self.at.get(_beyond(spot, direction))
                if other is None or direction in self.exits[room]:
                    continue
                full = max(len(self.exits[room]), len(self.exits[other])) >= MOST_EXITS
                if not full and self.random.random() < 0.25:
                    self._join(spot, direction)


def _beyond(spot: tuple[int, int], direction: str) -> tuple[int, int]:
    east, north = STEPS[direction]
    return (spot[0] + east, spot[1] + north)
