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
from typing import Any

from selfdistill_cli.core.errors import UserError, did_you_mean
from selfdistill_cli.core.seeds import seed_for
from selfdistill_cli.core.types import Message, Task
from selfdistill_cli.envs.code.components import (
    CHANGE,
    CONSTANTS,
    GIVE,
    KEEP,
    SLOTS,
    Component,
    Slot,
)

SPLITS = ("train", "validation", "test", "demonstrations", "practice")
NUM_VALIDATION, NUM_TEST, NUM_DEMONSTRATIONS, NUM_PRACTICE = 160, 200, 400, 2000
NUM_TESTS = 8
ENTRY_POINT = "f"


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
    """Return the tasks of a split; raises UserError for an unknown name.

    train, validation, test: disjoint. demonstrations: the part of train that a warm-up may show
    without a hint. practice: other programs under a prompt that does not describe them, so that
    only a hint can tell; on these a model learns to read hints and nothing about the family.
    """
    if split not in SPLITS:
        raise UserError(
            f"split: found '{split}', expected one of {', '.join(SPLITS)}"
            + did_you_mean(split, SPLITS)
        )
    if split == "practice":
        return _practice_tasks()
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


def texts() -> list[str]:
    """Return what a tokenizer of this family should know: train's prompts, answers and calls."""
    out: list[str] = []
    for task in tasks("train"):
        call, expected = task.meta["calls"][0], task.meta["expected"][0]
        line = f"{ENTRY_POINT}({call[0]}) returned {expected}, expected {expected}"
        out += [task.messages[0]["content"], task.answer, line]
    return out


def wrong_program(task: Task, seed: int) -> str:
    """Return the task's program with one component changed, which fails at least one test.

    Raises UserError if the task is not of this family.
    """
    specification = _specification(task)
    for attempt in range(1000):
        other = _neighbour(specification, seed_for("wrong", seed, task.id, attempt))
        answers = [other.function(call[0]) for call in task.meta["calls"]]
        if answers != task.meta["expected"]:
            return other.program()
    raise AssertionError(f"no program near {task.id} fails its tests")


def skill(task: Task, seed: int) -> str:
    """Return how one part of the task is done, for example `even: ... for x in xs if ...`.

    Only parts that need code of their own count. Raises UserError for a task of another family.
    """
    specification = _specification(task)
    keep, change, give = specification.keep, specification.change, specification.give
    idioms = [(give, give.component.code.replace("{items}", "..."))]
    if keep.component.code:
        idioms.append((keep, f"for x in xs if {keep.component.code}"))
    if change.component.code != "x":
        idioms.append((change, f"{change.component.code} for x in xs"))
    part, idiom = idioms[seed_for("skill", seed, task.id) % len(idioms)]
    phrase = part.component.phrases[seed_for("skill phrase", seed, task.id) % 2]
    return part.fill(f"{phrase}: {idiom}")


def _specification(task: Task) -> Specification:
    found = _specifications().get(task.id) or _practice_specifications().get(task.id)
    if found is None:
        raise UserError(f"task: found id '{task.id}', expected a task of the built-in family")
    return found


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
    return tuple(_task(s, s.id, s.description()) for s in _specifications().values())


@cache
def _practice_specifications() -> dict[str, Specification]:
    """The programs of the practice split by task id."""
    known, drawn, draw = _specifications(), {}, 0
    while len(drawn) < NUM_PRACTICE:
        seed = seed_for("practice", draw)
        draw += 1
        keep, seed = KEEP[seed % len(KEEP)], seed // len(KEEP)
        change, seed = CHANGE[seed % len(CHANGE)], seed // len(CHANGE)
        give, seed = GIVE[seed % len(GIVE)], seed // len(GIVE)
        found = Specification(_choice(keep, seed), _choice(change, seed // 1000), Choice(give, 0))
        if found.id not in known:
            drawn.setdefault(found.id, found)
    return {"practice" + name.removeprefix("family"): found for name, found in drawn.items()}


@cache
def _practice_tasks() -> tuple[Task, ...]:
    return tuple(
        _task(found, name, f"Write {ENTRY_POINT}(xs).")
        for name, found in _practice_specifications().items()
    )


def _task(specification: Specification, name: str, description: str) -> Task:
    inputs = _inputs(specification)
    function = specification.function
    return Task(
        id=name,
        messages=(Message(role="user", content=description),),
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
        numbers = _numbers(f"{specification.id}/{i}", low, high, 3 + i // 4)
        if i % 4 == 3:
            numbers = [number * max(k, 1) for number in numbers] + numbers[:1]
        extra = numbers[0] if i % 2 else -numbers[0]
        lists.append([*numbers[:-1], extra, numbers[0], numbers[-1]])
    return lists


def _numbers(key: str, low: int, high: int, length: int) -> list[int]:
    """Return up to 32 integers in [low, high]: the bytes of the key's SHA-256, reduced."""
    digest = hashlib.sha256(key.encode()).digest()
    return [low + byte % (high - low + 1) for byte in digest[:length]]
