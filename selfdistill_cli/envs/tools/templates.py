"""Kinds of tasks, from one call to three."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from selfdistill_cli.envs.agents.actions import Action
from selfdistill_cli.envs.tools import calculator, toolbox, units
from selfdistill_cli.envs.tools.drawing import Draw
from selfdistill_cli.envs.tools.template import Case, Template, call
from selfdistill_cli.envs.tools.toolbox import State


class Remember(Template):
    requests = ("Store {value} under '{key}'.", "Put {value} under the key '{key}'.")
    skill = "put needs the key first and then the value, both exactly as the request has them."
    num_calls = 1

    def case(self, draw: Draw) -> Case:
        return {"key": draw.key(), "value": draw.whole(10, 999)}

    def calls(self, case: Case, state: State) -> Sequence[Action]:
        return [call("put", key=case["key"], value=case["value"])]


class WriteNote(Template):
    requests = ("Write '{text}' to the file {path}.", "Make a file {path} that says '{text}'.")
    skill = "write_file makes a new file: the path with its folder, then the words without quotes."
    num_calls = 1

    def case(self, draw: Draw) -> Case:
        return {"path": draw.path(), "text": f"{draw.name()} {draw.name()}"}

    def calls(self, case: Case, state: State) -> Sequence[Action]:
        return [call("write_file", path=case["path"], text=case["text"])]


class RemoveFile(Template):
    requests = ("Delete the file {path}.", "The file {path} can go.")
    skill = "delete_file takes the whole path; nothing else may be deleted."
    num_calls = 1

    def case(self, draw: Draw) -> Case:
        return {"path": draw.path(draw.name())}

    def calls(self, case: Case, state: State) -> Sequence[Action]:
        return [call("delete_file", path=case["path"])]


class Book(Template):
    requests = (
        "Book '{title}' on {day} at {start} for {hours} h.",
        "Add an event '{title}': {day}, {start} o'clock, {hours} hours long.",
    )
    skill = "create_event wants title, day, start and length in hours; a day is three letters."
    num_calls = 1

    def case(self, draw: Draw) -> Case:
        day, start = draw.slot()
        return {"title": draw.name(), "day": day, "start": start, "hours": draw.whole(1, 2)}

    def calls(self, case: Case, state: State) -> Sequence[Action]:
        return [call("create_event", **case)]


class Reschedule(Template):
    requests = ("Move '{title}' to {day} at {start}.", "'{title}' is now on {day}, {start}.")
    skill = "move_event keeps the length of an event; give its title, the new day and hour."
    num_calls = 1

    def case(self, draw: Draw) -> Case:
        day, start = draw.slot()
        return {"title": draw.event(), "day": day, "start": start}

    def calls(self, case: Case, state: State) -> Sequence[Action]:
        return [call("move_event", **case)]


class LookUp(Template):
    requests = ("What is stored under '{key}'?", "Tell me the value of '{key}'.")
    skill = "get the key, then answer with the value that it gives and nothing more."
    num_calls = 1

    def case(self, draw: Draw) -> Case:
        value = draw.whole(10, 999)
        return {"key": draw.key(value), "value": value}

    def calls(self, case: Case, state: State) -> Sequence[Action]:
        return [call("get", key=case["key"])]

    def answer(self, case: Case, state: State) -> Any:
        return case["value"]


class ReadOut(Template):
    requests = ("Which word is in {path}?", "Read {path} and answer with its word.")
    skill = "read_file shows the text; answer repeats it."
    num_calls = 1

    def case(self, draw: Draw) -> Case:
        word = draw.name()
        return {"path": draw.path(word), "word": word}

    def calls(self, case: Case, state: State) -> Sequence[Action]:
        return [call("read_file", path=case["path"])]

    def answer(self, case: Case, state: State) -> Any:
        return case["word"]


class Agenda(Template):
    requests = ("Which event is on {day} at {start}?", "What starts on {day} at {start}?")
    skill = "list_events shows a day's events as title, day and hours; answer with the title."
    num_calls = 1

    def case(self, draw: Draw) -> Case:
        title = draw.event()
        return {**draw.state["calendar"][title], "title": title}

    def calls(self, case: Case, state: State) -> Sequence[Action]:
        return [call("list_events", day=case["day"])]

    def answer(self, case: Case, state: State) -> Any:
        return case["title"]


class Compute(Template):
    requests = ("Store {sum} under '{key}'.", "Work out {sum} and put the result under '{key}'.")
    skill = "calculate gives the number; put stores that number, not the expression."
    num_calls = 2

    def case(self, draw: Draw) -> Case:
        signs = draw.one([("*", "+"), ("*", "-"), ("+", "*")])
        numbers = [draw.whole(2, 30) for _ in range(3)]
        text = f"{numbers[0]} {signs[0]} {numbers[1]} {signs[1]} {numbers[2]}"
        return {"sum": text, "key": draw.key()}

    def calls(self, case: Case, state: State) -> Sequence[Action]:
        return [
            call("calculate", expression=case["sum"]),
            call("put", key=case["key"], value=calculator.calculate(case["sum"])),
        ]


class CopyToFile(Template):
    requests = (
        "Append the value of '{key}' to {path}.",
        "Add a line to {path}: what is stored under '{key}'.",
    )
    skill = "get first; append_file adds the value as a line and keeps what is in the file."
    num_calls = 2

    def case(self, draw: Draw) -> Case:
        value = draw.name()
        return {"key": draw.key(value), "path": draw.path(draw.name()), "value": value}

    def calls(self, case: Case, state: State) -> Sequence[Action]:
        return [
            call("get", key=case["key"]),
            call("append_file", path=case["path"], text=case["value"]),
        ]


class BookFree(Template):
    requests = (
        "Book '{title}' for {hours} h in the first free slot on {day}.",
        "On {day}, find the first {hours} free hours and book '{title}' then.",
    )
    skill = "find_free_slot says the start; create_event takes it with the same day and length."
    num_calls = 2

    def case(self, draw: Draw) -> Case:
        day = draw.day()
        draw.event(day)
        return {"title": draw.name(), "day": day, "hours": draw.whole(1, 2)}

    def calls(self, case: Case, state: State) -> Sequence[Action]:
        day, hours = case["day"], case["hours"]
        start = int(toolbox.find_free_slot(state, day, hours).split()[-1])
        return [
            call("find_free_slot", day=day, hours=hours),
            call("create_event", title=case["title"], day=day, start=start, hours=hours),
        ]


class CancelNoted(Template):
    requests = (
        "Delete the event that {path} names.",
        "{path} has the title of an event. Cancel it.",
    )
    skill = "read_file gives the title; delete_event takes it. The file stays."
    num_calls = 2

    def case(self, draw: Draw) -> Case:
        title = draw.event()
        return {"title": title, "path": draw.path(title)}

    def calls(self, case: Case, state: State) -> Sequence[Action]:
        return [call("read_file", path=case["path"]), call("delete_event", title=case["title"])]


class FileAway(Template):
    requests = (
        "Move {path} to the path that is stored under '{key}'.",
        "'{key}' holds a path. Move the file {path} there.",
    )
    skill = "get the key for the new path; move_file takes the old path and then the new one."
    num_calls = 2

    def case(self, draw: Draw) -> Case:
        to = draw.path()
        return {"path": draw.path(draw.name()), "key": draw.key(to), "to": to}

    def calls(self, case: Case, state: State) -> Sequence[Action]:
        return [
            call("get", key=case["key"]),
            call("move_file", path=case["path"], to=case["to"]),
        ]


class Classify(Template):
    requests = (
        "If the number in {path} is above {limit}, put 'high' under '{key}', else 'low'.",
        "Put 'high' or 'low' under '{key}': high if {path} has more than {limit}.",
    )
    skill = "read_file gives the number; compare it with the limit, then put the one word."
    num_calls = 2

    def case(self, draw: Draw) -> Case:
        # One case is high and the next one low, so that both words are among the decoys' calls.
        high = len(draw.state["files"]) % 2 == draw.coin
        low, most = sorted(draw.several(range(10, 99), 2))
        number, limit = (most, low) if high else (low, most)
        word = "high" if high else "low"
        return {"path": draw.path(number), "limit": limit, "key": draw.key(), "word": word}

    def calls(self, case: Case, state: State) -> Sequence[Action]:
        return [
            call("read_file", path=case["path"]),
            call("put", key=case["key"], value=case["word"]),
        ]


class Longer(Template):
    requests = (
        "Is {first} or {second} more? Answer with the larger one in {to}.",
        "Answer with the larger of {first} and {second}, in {to}.",
    )
    skill = "convert both values to the unit that is asked for; answer with the larger number."
    num_calls = 2

    def case(self, draw: Draw) -> Case:
        parts = [(draw.whole(2, 99), unit) for unit in draw.several(("mi", "ft", "km", "in"), 2)]
        first, second = (f"{value} {unit}" for value, unit in parts)
        return {"first": first, "second": second, "to": "m", "parts": parts}

    def calls(self, case: Case, state: State) -> Sequence[Action]:
        return [call("convert", value=v, unit=u, to=case["to"]) for v, u in case["parts"]]

    def answer(self, case: Case, state: State) -> Any:
        return max(units.convert(v, u, case["to"]) for v, u in case["parts"])
