"""The components of the built-in family: which numbers, what change, what to return.

`{k}` stands for the component's constant, `{items}` for the generator of changed numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Slot = Literal["keep", "change", "give"]
CONSTANTS = range(2, 10)


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
