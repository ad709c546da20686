"""What commands do, which are possible, and how they are told."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from selfdistill_cli.core.errors import did_you_mean
from selfdistill_cli.envs.agents.actions import Action, Malformed, Tool
from selfdistill_cli.envs.textgame.game import APPLIANCES, CARRIED, GONE, Command, State

LINKS = {"put": "in", "open": "with", "give": "to", "cook": "with"}
"""The word between a command's two things."""


def _tool(name: str, description: str, first: str = "what", second: str = "") -> Tool:
    """Return a tool; its second thing may stand in the first text or in a parameter of its own."""
    names = [first, second] if second else [first]
    schema = {
        "type": "object",
        "properties": {key: {"type": "string"} for key in names},
        "required": [first],
    }
    return Tool(name=name, description=description, parameters=schema)


NOTHING = {"type": "object", "properties": {}, "required": []}
COMMON = (
    _tool("go", "Walks: go north.", first="direction"),
    _tool("take", "Takes a thing: take lamp."),
    _tool("put", "Puts a carried thing into an open container: put lamp in box.", second="in"),
    _tool("open", "Opens a container, or a door with its key: open door with key.", second="with"),
    Tool(name="look", description="Tells what is here.", parameters=NOTHING),
    Tool(name="inventory", description="Tells what you carry.", parameters=NOTHING),
)
COOKING = (
    _tool("cook", "Cooks a carried food: cook egg with stove.", second="with"),
    _tool("make", "Makes a dish of its cooked ingredients: make soup."),
)
TRADING = (_tool("give", "Gives a carried thing to somebody: give ring to NAME.", second="to"),)


def tools_of(state: State) -> Sequence[Tool]:
    """Return what can be written in this game."""
    trading = TRADING if state.game.trades else ()
    return (*COMMON, *(COOKING if state.game.dish else ()), *trading)


def as_action(command: Command) -> Action:
    """Return the action that spells a command: `put lamp in box`."""
    verb, what, other = command
    name = "direction" if verb == "go" else "what"
    return Action(name=verb, arguments={name: f"{what} {LINKS[verb]} {other}" if other else what})


def _name(text: str) -> str:
    return " ".join(text.lower().split()).removeprefix("the ")


def as_command(action: Action) -> Command:
    """Return the command of an action whose arguments fit its tool."""
    link = LINKS.get(action.name, "")
    what = str(next(iter(action.arguments.values()), "") if not link else action.arguments["what"])
    other = str(action.arguments.get(link, ""))
    if link and not other:
        words = what.replace(" into ", " in ")
        before, _, after = words.rpartition(f" {link} ")
        what, other = (before, after) if before else (words, "")
    if action.name == "take":
        what = what.partition(" from ")[0]
    return Command(action.name, _name(what), _name(other))


def commands(state: State) -> list[Command]:
    """Return every possible command that changes something, in a fixed order."""
    game, here, carried = state.game, state.container_here(), state.carried()
    found: list[Command] = []
    for direction in game.exits[state.room]:
        door = game.doors.get((state.room, direction))
        if door is None or door.name in state.open:
            found.append(Command("go", direction))
        elif door.key in carried:
            found.append(Command("open", door.name, door.key))
    if here and here not in state.open:
        found.append(Command("open", here))
    found += [Command("take", item) for item in reachable(state)]
    if here and here in state.open:
        found += [Command("put", item, here) for item in carried]
    if state.room == game.kitchen:
        raw = [item for item in carried if item in game.foods and item not in state.cooked]
        found += [Command("cook", item, where) for item in raw for where in APPLIANCES]
        found += [Command("make", game.dish)] if ready(state) else []
    for trade in state.people_here():
        found += [Command("give", trade.wants, trade.person)] if trade.wants in carried else []
    return found


def reachable(state: State) -> list[str]:
    """Return what can be taken here."""
    here = state.container_here()
    return state.at(state.room) + (state.at(here) if here and here in state.open else [])


def ready(state: State) -> bool:
    """Whether all ingredients are cooked as the recipe says and carried."""
    recipe = state.game.recipe
    return not state.made and all(
        state.cooked.get(item) == where and state.places[item] == CARRIED
        for item, where in recipe.items()
    )


def do(state: State, command: Command) -> str:
    """Change the state; return what is seen. Raises Malformed for what cannot be done."""
    return VERBS[command.verb](state, command)


def look(state: State, _: Command | None = None) -> str:
    """Return what is to be seen in the room."""
    game = state.game
    exits: list[str] = []
    for direction in game.exits[state.room]:
        door = game.doors.get((state.room, direction))
        shut = door is not None and door.name not in state.open
        exits.append(f"{direction} ({door.name}, locked)" if door and shut else direction)
    here = state.container_here()
    things = state.at(state.room) + ([_container(state, here)] if here else [])
    things += APPLIANCES if state.room == game.kitchen else ()
    for trade in state.people_here():
        done = state.places[trade.wants] == GONE
        things.append(trade.person if done else f"{trade.person} (wants {trade.wants})")
    seen = f" Here: {', '.join(things)}." if things else ""
    return f"{state.room}. Exits: {', '.join(exits)}.{seen}"


def _container(state: State, name: str) -> str:
    if name not in state.open:
        return f"{name} (closed)"
    inside = ", ".join(state.at(name))
    return f"{name} (in it: {inside})" if inside else f"{name} (empty)"


def _inventory(state: State, _: Command) -> str:
    return f"You carry: {', '.join(state.carried()) or 'nothing'}."


def _go(state: State, command: Command) -> str:
    exits = state.game.exits[state.room]
    if command.what not in exits:
        raise Malformed(f"no exit '{command.what:.40}' here; exits: {', '.join(exits)}")
    door = state.game.doors.get((state.room, command.what))
    if door and door.name not in state.open:
        raise Malformed(f"{door.name} is locked; open it with {door.key}")
    state.room = exits[command.what]
    return look(state)


def _take(state: State, command: Command) -> str:
    if command.what not in reachable(state):
        near = did_you_mean(command.what, reachable(state))
        raise Malformed(f"there is no '{command.what:.40}' to take here{near}")
    state.places[command.what] = CARRIED
    return f"You take {command.what}."


def _carrying(state: State, item: str) -> None:
    if item not in state.carried():
        near = did_you_mean(item, state.carried())
        raise Malformed(f"you do not carry '{item:.40}'{near}")


def _put(state: State, command: Command) -> str:
    _carrying(state, command.what)
    here = state.container_here()
    if here is None or command.other != here:
        raise Malformed(f"there is no container '{command.other:.40}' here")
    if here not in state.open:
        raise Malformed(f"{here} is closed")
    state.places[command.what] = here
    return f"You put {command.what} in {here}."


def _open(state: State, command: Command) -> str:
    here = state.container_here()
    if command.what == here:
        if here in state.open:
            raise Malformed(f"{here} is open already")
        state.open.add(here)
        return f"You open it: {_container(state, here)}."
    for direction in state.game.exits[state.room]:
        door = state.game.doors.get((state.room, direction))
        if door and command.what in (door.name, "door"):
            if door.name in state.open:
                raise Malformed(f"{door.name} is open already")
            if command.other != door.key:
                raise Malformed(f"{door.name} is locked; open it with {door.key}")
            _carrying(state, door.key)
            state.open.add(door.name)
            return f"{door.name} is open: go {direction}."
    raise Malformed(f"there is no '{command.what:.40}' to open here")


def _cook(state: State, command: Command) -> str:
    item = command.what
    _carrying(state, item)
    if state.room != state.game.kitchen or command.other not in APPLIANCES:
        raise Malformed(f"there is no '{command.other:.40}' here")
    if item not in state.game.foods or item in state.cooked:
        raise Malformed(f"'{item:.40}' cannot be cooked (again)")
    state.cooked[item] = command.other
    if state.game.recipe.get(item, command.other) != command.other:
        state.lost = True
        return f"{item} is spoiled. You lost."
    return f"You cook {item}."


def _make(state: State, command: Command) -> str:
    if command.what != state.game.dish or state.room != state.game.kitchen:
        raise Malformed(f"'{command.what:.40}' cannot be made here")
    if not ready(state):
        raise Malformed("carry all ingredients, each cooked as the recipe says")
    state.made = True
    for item in state.game.recipe:
        state.places[item] = GONE
    return f"You make {state.game.dish}."


def _give(state: State, command: Command) -> str:
    _carrying(state, command.what)
    trade = state.game.trades.get(command.other)
    if trade is None or trade.room != state.room:
        raise Malformed(f"there is no '{command.other:.40}' here")
    if command.what != trade.wants:
        raise Malformed(f"{trade.person} wants {trade.wants}")
    state.places[trade.wants] = GONE
    state.places[trade.gives] = CARRIED
    return f"{trade.person} gives you {trade.gives}."


VERBS: dict[str, Callable[[State, Command], str]] = {
    "go": _go, "take": _take, "put": _put, "open": _open, "look": look, "inventory": _inventory,
    "cook": _cook, "make": _make, "give": _give,
}  # fmt: skip
