"""What an expert does next, from any state: search over rooms, and what each step needs first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from selfdistill_cli.envs.textgame.game import CARRIED, Command, Door, Fact, State
from selfdistill_cli.envs.textgame.rules import commands, do


def next_command(state: State) -> Command | None:
    """Return the next command of a plan that solves the game, None if it is solved or lost."""
    if state.lost:
        return None
    for goal in state.game.goals:
        found = _towards(state, goal)
        if found:
            return found
    return None


def _towards(state: State, fact: Fact) -> Command | None:
    """Return the next command on the way to a fact, None if it is true."""
    if state.holds(fact):
        return None
    return {
        "hold": _hold,
        "got": _hold,
        "inside": _inside,
        "opened": _opened,
        "cooked": _cooked,
        "made": _made,
        "given": _given,
    }[fact.kind](state, fact)


def _hold(state: State, fact: Fact) -> Command | None:
    place = state.places[fact.what]
    if place == CARRIED:
        return None
    trade = state.game.trades.get(place)
    if trade:
        return _given(state, Fact("given", trade.wants, trade.person))
    room = state.game.containers.get(place, place)
    first = _walk(state, room)
    if first:
        return first
    if place != room and place not in state.open:
        return Command("open", place)
    return Command("take", fact.what)


def _inside(state: State, fact: Fact) -> Command | None:
    first = _hold(state, fact) or _walk(state, state.game.containers[fact.other])
    if first:
        return first
    shut = fact.other not in state.open
    return Command("open", fact.other) if shut else Command("put", fact.what, fact.other)


def _opened(state: State, fact: Fact) -> Command | None:
    first = _hold(state, Fact("hold", fact.other))
    if first:
        return first
    sides = [room for (room, _), door in state.game.doors.items() if door.name == fact.what]
    routes = {room: _route(state, room, through_locked=True) for room in sides}
    near = min(sides, key=lambda room: len(routes[room] or ()))
    return _walk(state, near) or Command("open", fact.what, fact.other)


def _cooked(state: State, fact: Fact) -> Command | None:
    first = _hold(state, fact) or _walk(state, state.game.kitchen)
    return first or Command("cook", fact.what, fact.other)


def _made(state: State, fact: Fact) -> Command | None:
    for item, where in state.game.recipe.items():
        first = _towards(state, Fact("cooked", item, where)) or _hold(state, Fact("hold", item))
        if first:
            return first
    return _walk(state, state.game.kitchen) or Command("make", fact.what)


def _given(state: State, fact: Fact) -> Command | None:
    first = _hold(state, Fact("hold", fact.what))
    room = state.game.trades[fact.other].room
    return first or _walk(state, room) or Command("give", fact.what, fact.other)


def _walk(state: State, room: str) -> Command | None:
    """Return the first step to a room, None if the player is there; keys are fetched first."""
    if state.room == room:
        return None
    route = _route(state, room, through_locked=False)
    if route:
        return Command("go", route[0][1])
    route = _route(state, room, through_locked=True)
    assert route, f"no way from {state.room} to {room}"
    place, door = next(_locked(state, route))
    first = _hold(state, Fact("hold", door.key))
    if first:
        return first
    return _walk(state, place) or Command("open", door.name, door.key)


def _locked(state: State, route: list[tuple[str, str]]) -> Iterator[tuple[str, Door]]:
    """Yield the locked doors of a route, each with the room before it."""
    for room, direction in route:
        door = state.game.doors.get((room, direction))
        if door and door.name not in state.open:
            yield room, door


def _route(state: State, goal: str, *, through_locked: bool) -> list[tuple[str, str]] | None:
    """Return the shortest way to a room as (room, direction) pairs, None if there is none."""
    came: dict[str, tuple[str, str]] = {}
    queue, seen = deque([state.room]), {state.room}
    while queue:
        room = queue.popleft()
        if room == goal:
            return _back(came, state.room, goal)
        for direction, there in state.game.exits[room].items():
            door = state.game.doors.get((room, direction))
            passable = through_locked or door is None or door.name in state.open
            if passable and there not in seen:
                seen.add(there)
                came[there] = (room, direction)
                queue.append(there)
    return None


def _back(came: dict[str, tuple[str, str]], start: str, goal: str) -> list[tuple[str, str]]:
    route: list[tuple[str, str]] = []
    while goal != start:
        route.append(came[goal])
        goal = came[goal][0]
    return route[::-1]


def walkthrough(state: State, limit: int = 10_000) -> list[Command]:
    """Play the expert's commands to the end; return them. The state is changed."""
    made: list[Command] = []
    while len(made) < limit:
        command = next_command(state)
        if command is None:
            break
        assert command in commands(state), f"the plan does what is impossible: {command}"
        do(state, command)
        made.append(command)
    return made
