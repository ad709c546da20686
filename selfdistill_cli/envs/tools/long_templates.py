"""Kinds of tasks of three to five calls, across tools."""

from __future__ import annotations

from collections.abc import Sequence

from selfdistill_cli.envs.agents.actions import Action
from selfdistill_cli.envs.tools import templates, toolbox, units
from selfdistill_cli.envs.tools.calculator import calculate
from selfdistill_cli.envs.tools.drawing import Draw
from selfdistill_cli.envs.tools.template import Case, Template, call
from selfdistill_cli.envs.tools.toolbox import State


class ConvertNoted(Template):
    requests = (
        "Read the number in {path}, convert it from {unit} to {to}, store it under '{key}'.",
        "{path} has a number of {unit}. Put it under '{key}' in {to}.",
    )
    skill = "read_file, then convert with both units, then put the number that convert gives."
    num_calls = 3

    def case(self, draw: Draw) -> Case:
        (unit, to), value = draw.units(), draw.whole(2, 99)
        return {
            "path": draw.path(value), "value": value, "unit": unit, "to": to, "key": draw.key(),
        }  # fmt: skip

    def calls(self, case: Case, state: State) -> Sequence[Action]:
        value, unit, to = case["value"], case["unit"], case["to"]
        return [
            call("read_file", path=case["path"]),
            call("convert", value=value, unit=unit, to=to),
            call("put", key=case["key"], value=units.convert(value, unit, to)),
        ]


class RenameKey(Template):
    requests = (
        "Rename the key '{old}' to '{new}'.",
        "'{old}' should be called '{new}', with the same value.",
    )
    skill = "There is no renaming: get the value, put it under the new key, delete_key the old."
    num_calls = 3

    def case(self, draw: Draw) -> Case:
        value = draw.whole(10, 999)
        return {"old": draw.key(value), "new": draw.key(), "value": value}

    def calls(self, case: Case, state: State) -> Sequence[Action]:
        return [
            call("get", key=case["old"]),
            call("put", key=case["new"], value=case["value"]),
            call("delete_key", key=case["old"]),
        ]


class ClearDay(Template):
    requests = ("Cancel all events on {day}.", "Clear the calendar on {day}.")
    skill = "list_events says what is there; delete_event each title of that day, no other."
    num_calls = 3

    def case(self, draw: Draw) -> Case:
        day = draw.day()
        titles = [draw.event(day) for _ in range(2)]
        order = sorted(titles, key=lambda title: draw.state["calendar"][title]["start"])
        return {"day": day, "titles": order}

    def calls(self, case: Case, state: State) -> Sequence[Action]:
        deletions = [call("delete_event", title=title) for title in case["titles"]]
        return [call("list_events", day=case["day"]), *deletions]


class MoveAndLog(Template):
    requests = (
        "Move '{title}' to the first free {hours} h on {day} and append its start to {path}.",
        "Find {hours} free hours on {day}, move '{title}' there, add the start to {path}.",
    )
    skill = "find_free_slot gives the start: move_event uses it, and append_file logs the number."
    num_calls = 3

    def case(self, draw: Draw) -> Case:
        title, day = draw.event(), draw.day()
        draw.event(day)
        hours = draw.state["calendar"][title]["hours"]
        return {"title": title, "day": day, "hours": hours, "path": draw.path(draw.name())}

    def calls(self, case: Case, state: State) -> Sequence[Action]:
        day, hours = case["day"], case["hours"]
        start = int(toolbox.find_free_slot(state, day, hours).split()[-1])
        return [
            call("find_free_slot", day=day, hours=hours),
            call("move_event", title=case["title"], day=day, start=start),
            call("append_file", path=case["path"], text=str(start)),
        ]


class AddFiles(Template):
    requests = (
        "Write the sum of the numbers in {first} and {second} to {path}.",
        "Add up the numbers of {first} and {second}; the result goes to a file {path}.",
    )
    skill = "read_file both, calculate the sum of what they say, write_file the result alone."
    num_calls = 4

    def case(self, draw: Draw) -> Case:
        numbers = [draw.whole(10, 999) for _ in range(2)]
        first, second = map(draw.path, numbers)
        return {"first": first, "second": second, "path": draw.path(), "numbers": numbers}

    def calls(self, case: Case, state: State) -> Sequence[Action]:
        first, second = case["numbers"]
        return [
            call("read_file", path=case["first"]),
            call("read_file", path=case["second"]),
            call("calculate", expression=f"{first} + {second}"),
            call("write_file", path=case["path"], text=str(first + second)),
        ]


class SwapKeys(Template):
    requests = (
        "Swap the values of '{first}' and '{second}'.",
        "'{first}' and '{second}' were mixed up: exchange their values.",
    )
    skill = "get both values before the first put, which would overwrite one of them."
    num_calls = 4

    def case(self, draw: Draw) -> Case:
        numbers = draw.several(range(10, 999), 2)
        first, second = map(draw.key, numbers)
        return {"first": first, "second": second, "numbers": numbers}

    def calls(self, case: Case, state: State) -> Sequence[Action]:
        first, second, numbers = case["first"], case["second"], case["numbers"]
        return [
            call("get", key=first),
            call("get", key=second),
            call("put", key=first, value=numbers[1]),
            call("put", key=second, value=numbers[0]),
        ]


class Invoice(Template):
    requests = (
        "{path} has an amount in {unit}, '{rate}' the price per {to}. Put the cost under '{key}'.",
        "Put under '{key}' what the {unit} in {path} cost, at the price per {to} in '{rate}'.",
    )
    skill = (
        "read_file the amount and get the price, convert the amount to the unit of the price, "
        "calculate amount * price, put the result."
    )
    num_calls = 5

    def case(self, draw: Draw) -> Case:
        unit, to = draw.one((("lb", "kg"), ("oz", "g"), ("gal", "l"), ("ft", "m"), ("mi", "km")))
        amount, price = draw.whole(2, 60), draw.whole(2, 9)
        return {
            "path": draw.path(amount), "rate": draw.key(price), "key": draw.key(),
            "unit": unit, "to": to, "amount": amount, "price": price,
        }  # fmt: skip

    def calls(self, case: Case, state: State) -> Sequence[Action]:
        converted = units.convert(case["amount"], case["unit"], case["to"])
        expression = f"{converted} * {case['price']}"
        return [
            call("read_file", path=case["path"]),
            call("get", key=case["rate"]),
            call("convert", value=case["amount"], unit=case["unit"], to=case["to"]),
            call("calculate", expression=expression),
            call("put", key=case["key"], value=calculate(expression)),
        ]


TEMPLATES: dict[str, Template] = {
    template.name: template
    for template in (
        templates.Remember(), templates.WriteNote(), templates.RemoveFile(), templates.Book(),
        templates.Reschedule(), templates.LookUp(), templates.ReadOut(), templates.Agenda(),
        templates.Compute(), templates.CopyToFile(), templates.BookFree(),
        templates.CancelNoted(), templates.FileAway(), templates.Classify(), templates.Longer(),
        ConvertNoted(), RenameKey(), ClearDay(), MoveAndLog(), AddFiles(), SwapKeys(), Invoice(),
    )
}  # fmt: skip
