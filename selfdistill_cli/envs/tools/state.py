"""Comparing what there is with what there should be: plain JSON values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from selfdistill_cli.core.texts import readable

LONGEST = 80
MISSING = object()


def number_of(value: Any) -> float | None:
    """Return the number that a value or text is, None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and len(value) > 40:
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def same_value(found: Any, goal: Any) -> bool:
    """Whether two values mean the same: 12, 12.0 and "12" do, and so do "a" and "a\\n"."""
    numbers = number_of(found), number_of(goal)
    if numbers[0] is not None and numbers[1] is not None:
        return math.isclose(numbers[0], numbers[1], rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(found, str) and isinstance(goal, str):
        return found.rstrip() == goal.rstrip()
    if isinstance(found, Mapping) and isinstance(goal, Mapping):
        return found.keys() == goal.keys() and all(same_value(found[k], goal[k]) for k in goal)
    if isinstance(found, list) and isinstance(goal, list):
        return len(found) == len(goal) and all(map(same_value, found, goal))
    return type(found) is type(goal) and found == goal


def same_answer(found: Any, goal: Any) -> bool:
    """Whether an answer is right: like `same_value`, and spaces and letter case do not count."""
    if isinstance(found, str) and isinstance(goal, str):
        found, goal = (" ".join(text.casefold().split()) for text in (found, goal))
    return same_value(found, goal)


def shown(value: Any) -> str:
    """Return a value for people, cut where it is long."""
    text = readable(value if isinstance(value, str) else repr(value)).replace("\n", " / ")
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]} ..."


def unequal(found: Any, goal: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (place, what is there, what should be) where a state is not the goal.

    Objects are compared key by key; MISSING stands for nothing.
    """
    if not (isinstance(found, Mapping) and isinstance(goal, Mapping)):
        if found is MISSING or goal is MISSING or not same_value(found, goal):
            yield place or "state", found, goal
        return
    for key in sorted({*found, *goal}, key=str):
        where = f"{place} {shown(key)}".strip()
        yield from unequal(found.get(key, MISSING), goal.get(key, MISSING), where)


def differences(found: Any, goal: Any) -> list[str]:
    """Return one line for every difference, such as `store x: is missing, should be 5`."""
    lines: list[str] = []
    for place, there, wanted in unequal(found, goal):
        if there is MISSING:
            lines.append(f"{place}: is missing, should be {shown(wanted)}")
        elif wanted is MISSING:
            lines.append(f"{place}: should not be there, is {shown(there)}")
        else:
            lines.append(f"{place}: is {shown(there)}, should be {shown(wanted)}")
    return lines


def changes(before: Any, after: Any) -> list[str]:
    """Return one line for everything that is new or other, such as `store x = 5`."""
    return [
        f"{place} is gone" if new is MISSING else f"{place} = {shown(new)}"
        for place, _, new in unequal(before, after)
    ]
