"""The built-in family: "take some numbers, change each, return one thing" as `def f(xs)`.

A specification is a choice of three components (which numbers, what change, what to return),
some of which carry a constant. Its description, its reference program and its tests all follow
from that choice. Everything is a function of SHA-256 of readable keys, so that no version of a
random generator can move a task from one split to another.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal

from selfdistill_cli.core.errors import UserError, did_you_mean
from selfdistill_cli.core.seeds import seed_for
from selfdistill_cli.core.types import Message, Task

Slot = Literal["keep", "change", "give"]
SPLITS = ("train", "validation", "test", "demonstrations")
NUM_VALIDATION, NUM_TEST, NUM_DEMONSTRATIONS = 160, 200, 400
NUM_TESTS = 8
CONSTANTS = range(2, 10)
ENTRY_POINT = "f"


@dataclass(frozen=True)
class Component:
    """One way to fill a slot; `{k}` stands for the constant in phrases and code."""

    name: str
    """Part of the task id."""
    phrases: tuple[str, str]
    """Two ways to say it."""
    code: str
    """Condition or expression in x, or a template around `{items}`."""
    least: int = 2
    """Smallest constant that makes sense."""

    @property
    def has_constant(self) -> bool:
        """Whether the component carries a constant."""
        return "{k}" in self.code


KEEP = (
    Component("every", ("take every number", "use all numbers"), ""),
    Component("even", ("keep the even numbers", "take only even numbers"), "x % 2 == 0"),
    Component("odd", ("keep the odd numbers", "take only odd numbers"), "x % 2 == 1"),
    Component("positive", ("keep the positive numbers", "drop zeros and negatives"), "x > 0"),
    Component("negative", ("keep the negative numbers", "take those below zero"), "x < 0"),
    Component("nonzero", ("drop the zeros", "keep what is not zero"), "x != 0"),
    Component("above", ("keep numbers above {k}", "take those greater than {k}"), "x > {k}"),
    Component("below", ("keep numbers below {k}", "take those less than {k}"), "x < {k}"),
    Component("multiple", ("keep multiples of {k}", "take those divisible by {k}"),
              "x % {k} == 0", 3),
    Component("indivisible", ("drop multiples of {k}", "take those not divisible by {k}"),
              "x % {k} != 0", 3),
    Component("far", ("keep numbers with size above {k}", "take those further than {k} from zero"),
              "abs(x) > {k}"),
)  # fmt: skip
CHANGE = (
    Component("same", ("", ""), "x"),
    Component("square", ("square each", "multiply each by itself"), "x * x"),
    Component("cube", ("cube each", "raise each to the third power"), "x ** 3"),
    Component("size", ("make each positive", "take absolute values"), "abs(x)"),
    Component("negate", ("negate each", "flip each sign"), "-x"),
    Component("add", ("add {k} to each", "increase each by {k}"), "x + {k}"),
    Component("subtract", ("subtract {k} from each", "decrease each by {k}"), "x - {k}"),
    Component("times", ("multiply each by {k}", "scale each by {k}"), "x * {k}"),
    Component("rest", ("take each modulo {k}", "find each remainder by {k}"), "x % {k}"),
    Component("divide", ("floor divide each by {k}", "divide each by {k} and round down"),
              "x // {k}"),
    Component("from", ("subtract each from {k}", "replace each by {k} minus it"), "{k} - x"),
)  # fmt: skip
GIVE = (
    Component("sum", ("the sum", "the total"), "sum({items})"),
    Component("largest", ("the largest or 0", "the maximum or 0"), "max(({items}), default=0)"),
    Component("smallest", ("the smallest or 0", "the minimum or 0"), "min(({items}), default=0)"),
    Component("first", ("the first or 0", "the first one, else 0"), "next(({items}), 0)"),
    Component("last", ("the last or 0", "the last one, else 0"), "([0] + [{items}])[-1]"),
    Component("list", ("the list", "them as a list"), "[{items}]"),
    Component("reversed", ("the reversed list", "them from last to first"), "[{items}][::-1]"),
    Component("sorted", ("the sorted list", "them from small to large"), "sorted({items})"),
    Component("descending", ("the list in descending order", "them from large to small"),
              "sorted(({items}), reverse=True)"),
    Component("variety", ("how many are different", "the number of distinct values"),
              "len(set({items}))"),
    Component("setsum", ("the sum without repeats", "the total of distinct values"),
              "sum(set({items}))"),
    Component("unique", ("the sorted list without repeats", "the distinct values in order"),
              "sorted(set({items}))"),
)  # fmt: skip
SLOTS: dict[Slot, tuple[Component, ...]] = {"keep": KEEP, "change": CHANGE, "give": GIVE}


@dataclass(frozen=True)
class Choice:
    """A component with its constant (0 if it has none)."""

    component: Component
    k: int

    @property
    def name(self) -> str:
        """For example `above7`."""
        return self.component.name + (str(self.k) if self.component.has_constant else "")

    def fill(self, text: str) -> str:
        """Put the constant into a phrase or into code."""
        return text.replace("{k}", str(self.k))


@dataclass(frozen=True)
class Specification:
    """What one program does."""

    keep: Choice
    change: Choice
    give: Choice

    @property
    def id(self) -> str:
        """Readable and stable, for example `family/above7-square-sum`."""
        return f"family/{self.keep.name}-{self.change.name}-{self.give.name}"

    def expression(self) -> str:
        """The body of the program as one expression in xs."""
        condition = self.keep.fill(self.keep.component.code)
        items = f"{self.change.fill(self.change.component.code)} for x in xs"
        items += f" if {condition}" if condition else ""
        return self.give.component.code.replace("{items}", items)

    def program(self) -> str:
        """The reference program."""
        return f"def {ENTRY_POINT}(xs):\n    return {self.expression()}"

    def description(self) -> str:
        """One sentence; which of the two phrases is used depends on the id."""
        said = [
            choice.fill(choice.component.phrases[seed_for("phrase", self.id, slot) % 2])
            for slot, choice in (("keep", self.keep), ("change", self.change), ("give", self.give))
        ]
        steps = ", ".join([phrase for phrase in said[:2] if phrase] + [f"return {said[2]}"])
        return f"Write {ENTRY_POINT}(xs): {steps}."

    @cached_property
    def function(self) -> Callable[[list[int]], Any]:
        """The reference program, callable (our own text, never a model's)."""
        return eval(f"lambda xs: {self.expression()}")


def tasks(split: str) -> tuple[Task, ...]:
    """Return the tasks of `train`, `validation`, `test`, or `demonstrations` (part of train).

    Raises UserError for another name.
    """
    if split not in SPLITS:
        raise UserError(
            f"split: found '{split}', expected one of {', '.join(SPLITS)}"
            + did_you_mean(split, SPLITS)
        )
    held_out = NUM_VALIDATION + NUM_TEST
    start, stop = {
        "validation": (0, NUM_VALIDATION),
        "test": (NUM_VALIDATION, held_out),
        "train": (held_out, None),
        "demonstrations": (held_out, held_out + NUM_DEMONSTRATIONS),
    }[split]
    return _all_tasks()[start:stop]


def fingerprint(split: str) -> str:
    """Return the SHA-256 of a split: ids, messages, answers and tests of its tasks in order."""
    rows = [[task.id, task.messages, task.answer, dict(task.meta)] for task in tasks(split)]
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


def wrong_program(task: Task, seed: int) -> str:
    """Return the task's program with one component changed, which fails at least one test.

    Raises UserError if the task is not of this family.
    """
    specification = _specifications().get(task.id)
    if specification is None:
        raise UserError(f"task: found id '{task.id}', expected a task of the built-in family")
    for attempt in range(1000):
        other = _neighbour(specification, seed_for("wrong", seed, task.id, attempt))
        answers = [other.function(call[0]) for call in task.meta["calls"]]
        if answers != task.meta["expected"]:
            return other.program()
    raise AssertionError(f"no program near {task.id} fails its tests")


def _choice(component: Component, seed: int) -> Choice:
    if not component.has_constant:
        return Choice(component, 0)
    constants = [k for k in CONSTANTS if k >= component.least]
    return Choice(component, constants[seed % len(constants)])


def _neighbour(specification: Specification, seed: int) -> Specification:
    """Replace one component, or only its constant."""
    slots: list[Slot] = ["keep", "change", "give"]
    slot = slots[seed % 3]
    options = SLOTS[slot]
    component = options[seed // 3 % len(options)]
    choices = {name: getattr(specification, name) for name in slots}
    choices[slot] = _choice(component, seed // 1000)
    return Specification(**choices)


@cache
def _specifications() -> dict[str, Specification]:
    """All specifications by id, in the fixed order that the splits are cut from.

    Two draws of constants for each triple of components; of those that behave alike on a panel
    of inputs only the first remains.
    """
    drawn: dict[str, Specification] = {}
    for keep, change, give in ((a, b, c) for a in KEEP for b in CHANGE for c in GIVE):
        for draw in range(2):
            seed = seed_for("family", keep.name, change.name, give.name, draw)
            found = Specification(
                _choice(keep, seed), _choice(change, seed // 1000), Choice(give, 0)
            )
            drawn[found.id] = found
    panel = [_numbers(f"panel/{i}", -13, 20, 20) for i in range(8)]
    distinct: dict[str, Specification] = {}
    for found in sorted(drawn.values(), key=lambda s: seed_for("order", s.id)):
        function = found.function
        distinct.setdefault(repr([function(xs) for xs in panel]), found)
    return {found.id: found for found in distinct.values()}


@cache
def _all_tasks() -> tuple[Task, ...]:
    return tuple(_task(specification) for specification in _specifications().values())


def _task(specification: Specification) -> Task:
    inputs = _inputs(specification)
    function = specification.function
    return Task(
        id=specification.id,
        messages=(Message(role="user", content=specification.description()),),
        answer=specification.program(),
        meta={
            "entry_point": ENTRY_POINT,
            "calls": [[xs] for xs in inputs],
            "expected": [function(xs) for xs in inputs],
        },
    )


def _inputs(specification: Specification) -> list[list[int]]:
    """Lists around the constant of the condition, where neighbours differ, and wide ones.

    Two lists hold multiples of the constant. Every list repeats its first number or negates it,
    to tell apart what looks at duplicates and at signs.
    """
    k = specification.keep.k
    windows = [(-12, 20), (k - 5, k + 1), (-k - 1, k + 2), (-2, 3)] * (NUM_TESTS // 4)
    lists: list[list[int]] = []
    for i, (low, high) in enumerate(windows):
        numbers = _numbers(f"{specification.id}/{i}", low, high, 4 + i // 2)
        if i % 4 == 3:
            numbers = [number * max(k, 1) for number in numbers] + numbers[:1]
        extra = numbers[0] if i % 2 else -numbers[0]
        lists.append([*numbers[:-1], extra, numbers[0], numbers[-1]])
    return lists


def _numbers(key: str, low: int, high: int, length: int) -> list[int]:
    """Return up to 32 integers in [low, high]: the bytes of the key's SHA-256, reduced."""
    digest = hashlib.sha256(key.encode()).digest()
    return [low + byte % (high - low + 1) for byte in digest[:length]]
