"""The built-in tools: calendar, files, a key-value store, a calculator, units.

State is JSON: `{"calendar": {title: {day, start, hours}}, "files": {path: text}, "store": {key:
value}}`. A function's first parameter is the state; the rest is its schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

from selfdistill_cli.core.errors import did_you_mean
from selfdistill_cli.envs.agents.actions import Action, Tool, tool
from selfdistill_cli.envs.tools import calculator, units
from selfdistill_cli.envs.tools.calculator import ToolError
from selfdistill_cli.envs.tools.schemas import takes_state, tool_of

State = dict[str, Any]
Day = Literal["mon", "tue", "wed", "thu", "fri"]
DAYS: tuple[str, ...] = ("mon", "tue", "wed", "thu", "fri")
OPENS, CLOSES = 8, 18


def empty_state() -> State:
    """Return a state with nothing in it."""
    return {"calendar": {}, "files": {}, "store": {}}


def create_event(state: State, title: str, day: Day, start: int, hours: int) -> str:
    """Adds an event. Start is an hour of the day."""
    if title in state["calendar"]:
        raise ToolError(f"there is an event '{title}' already")
    _check_free(state, title, day, start, hours)
    state["calendar"][title] = {"day": day, "start": int(start), "hours": int(hours)}
    return f"created {_told(state, title)}"


def move_event(state: State, title: str, day: Day, start: int) -> str:
    """Moves an event to another day and hour."""
    event = _known(state["calendar"], title, "event")
    _check_free(state, title, day, start, event["hours"])
    state["calendar"][title] = {**event, "day": day, "start": int(start)}
    return f"moved {_told(state, title)}"


def delete_event(state: State, title: str) -> str:
    """Deletes an event."""
    _known(state["calendar"], title, "event")
    del state["calendar"][title]
    return f"deleted {title}"


def list_events(state: State, day: Day) -> str:
    """Lists the events of a day."""
    found = [(e["start"], title) for title, e in state["calendar"].items() if e["day"] == day]
    return "; ".join(_told(state, title) for _, title in sorted(found)) or f"no events on {day}"


def find_free_slot(state: State, day: Day, hours: int) -> str:
    """Finds the first free start on a day, from 8 to 18."""
    for start in range(OPENS, CLOSES - int(hours) + 1):
        if hours > 0 and not _overlapping(state, None, day, start, hours):
            return f"free from {start}"
    raise ToolError(f"no {int(hours)} free hours on {day}")


def list_files(state: State, folder: str = "") -> str:
    """Lists the files in a folder, or all of them."""
    prefix = folder.rstrip("/") + "/" if folder.strip("/. ") else ""
    return ", ".join(sorted(p for p in state["files"] if p.startswith(prefix))) or "no files"


def read_file(state: State, path: str) -> str:
    """Reads a file."""
    return _known(state["files"], path, "file") or "(empty)"


def write_file(state: State, path: str, text: str) -> str:
    """Writes a file, new or over the old one."""
    if not path.strip() or path.endswith("/"):
        raise ToolError(f"'{path}' is not the name of a file")
    state["files"][path] = text
    return f"wrote {path}"


def append_file(state: State, path: str, text: str) -> str:
    """Adds a line at the end of a file."""
    old = _known(state["files"], path, "file").rstrip("\n")
    state["files"][path] = f"{old}\n{text}" if old else text
    return f"appended to {path}"


def delete_file(state: State, path: str) -> str:
    """Deletes a file."""
    _known(state["files"], path, "file")
    del state["files"][path]
    return f"deleted {path}"


def move_file(state: State, path: str, to: str) -> str:
    """Moves a file to another path."""
    text = _known(state["files"], path, "file")
    if to in state["files"]:
        raise ToolError(f"there is a file '{to}' already")
    write_file(state, to, text)
    del state["files"][path]
    return f"moved {path} to {to}"


def get(state: State, key: str) -> str:
    """Gets the value of a key in the store."""
    return str(_known(state["store"], key, "key"))


def put(state: State, key: str, value: str | float) -> str:
    """Puts a value under a key in the store."""
    state["store"][key] = value
    return f"{key} = {value}"


def delete_key(state: State, key: str) -> str:
    """Deletes a key of the store."""
    _known(state["store"], key, "key")
    del state["store"][key]
    return f"deleted {key}"


def keys(state: State) -> str:
    """Lists the keys of the store."""
    return ", ".join(sorted(state["store"])) or "no keys"


def calculate(expression: str) -> str:
    """Computes an expression of numbers with + - * / ( )."""
    return str(calculator.calculate(expression))


def convert(value: float, unit: str, to: str) -> str:
    """Converts a value from a unit to another, rounded to 2 digits."""
    return str(units.convert(value, unit, to))


FUNCTIONS: dict[str, Callable[..., str]] = {
    function.__name__: function
    for function in (
        create_event, move_event, delete_event, list_events, find_free_slot,
        list_files, read_file, write_file, append_file, delete_file, move_file,
        get, put, delete_key, keys, calculate, convert,
    )
}  # fmt: skip
TOOLS: dict[str, Tool] = {name: tool_of(function) for name, function in FUNCTIONS.items()}
DONE = tool("done", "Ends: all is as it was asked for.")
ANSWER = Tool(
    name="answer",
    description="Ends with the answer to the question.",
    parameters={
        "type": "object",
        "properties": {"text": {"type": ["string", "number"]}},
        "required": ["text"],
    },
)
ENDING = (DONE, ANSWER)


def run(function: Callable[..., Any], state: Any, action: Action) -> str:
    """Call a tool's function; the text that it returns, or JSON of another value."""
    given = [state] if takes_state(function) else []
    value = function(*given, **action.arguments)
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _known(entries: dict[str, Any], name: str, what: str) -> Any:
    """Return an entry; raises ToolError naming the nearest one."""
    if name not in entries:
        raise ToolError(f"there is no {what} '{name:.60}'{did_you_mean(name, entries)}")
    return entries[name]


def _told(state: State, title: str) -> str:
    event = state["calendar"][title]
    return f"{title} {event['day']} {event['start']}-{event['start'] + event['hours']}"


def _overlapping(state: State, own: str | None, day: str, start: int, hours: int) -> str | None:
    for title, event in state["calendar"].items():
        begins, ends = event["start"], event["start"] + event["hours"]
        apart = start + hours <= begins or ends <= start
        if title != own and event["day"] == day and not apart:
            return title
    return None


def _check_free(state: State, title: str, day: str, start: int, hours: int) -> None:
    """Raise ToolError unless the hours are in the day and free."""
    if hours < 1 or start < 0 or start + hours > 24:
        raise ToolError(f"start {start} with {hours} hours is not within a day of 24 hours")
    other = _overlapping(state, title, day, start, hours)
    if other is not None:
        raise ToolError(f"that time is taken by {_told(state, other)}")
