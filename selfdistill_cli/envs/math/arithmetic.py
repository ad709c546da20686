"""Built-in arithmetic: seven kinds, five levels, each problem with its working.

Numbers are drawn from SHA-256 of readable keys, so that no version of a random generator can
change a problem. The working is made of lines `7+5=12`, short enough for a small model, and of
nothing else; the last line's result is the answer, or its digits are read off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from selfdistill_cli.core.seeds import seed_for
from selfdistill_cli.envs.math.problems import Problem

PATIENCE = 50
"""Draws in a row that may repeat known problems before a kind is taken to be exhausted."""
NAMES = ("Ann", "Bo", "Cy", "Di", "Ed", "Flo", "Gus", "Ida")
THINGS = ("nuts", "pens", "cards", "shells")


class Draw:
    """Whole numbers from one key."""

    def __init__(self, *key: int | str) -> None:
        """Start at the key's first number."""
        self._key, self._count = key, 0

    def number(self, low: int, high: int) -> int:
        """Return a number in [low, high]."""
        self._count += 1
        return low + seed_for(*self._key, self._count) % (high - low + 1)

    def digits(self, count: int) -> int:
        """Return a number of exactly `count` digits, not 0."""
        return self.number(10 ** (count - 1), 10**count - 1)


@dataclass(frozen=True)
class Made:
    """What a kind makes of a draw."""

    key: str
    """Equal for problems that are the same but for their wording."""
    question: str
    lines: tuple[str, ...]
    answer: int


def columns(draw: Draw, level: int) -> Made:
    """Two numbers of level + 1 digits, added in columns from the right, carries included."""
    first, second = draw.digits(level + 1), draw.digits(level + 1)
    lines: list[str] = []
    carry = 0
    for place in range(level + 1):
        a, b = (number // 10**place % 10 for number in (first, second))
        total = a + b + carry
        lines.append(f"{a}+{b}+{carry}={total}" if carry else f"{a}+{b}={total}")
        carry = total // 10
    key = f"{min(first, second)}+{max(first, second)}"
    return Made(key, f"{first}+{second}=?", tuple(lines), first + second)


def sums(draw: Draw, level: int) -> Made:
    """A chain of level + 2 numbers, added and taken away from left to right."""
    total = draw.digits(2)
    text, lines = str(total), []
    for _ in range(level + 1):
        number = draw.digits(1 + (level > 2))
        sign = "-" if draw.number(0, 1) else "+"
        after = total + number if sign == "+" else total - number
        lines.append(f"{total}{sign}{number}={after}")
        total, text = after, f"{text}{sign}{number}"
    return Made(text, f"{text}=?", tuple(lines), total)


def products(draw: Draw, level: int) -> Made:
    """A number of level + 1 digits times one of 1 (to level 3) or 2 digits, by its parts."""
    first, second = draw.digits(level + 1), draw.number(2, 9) if level <= 3 else draw.digits(2)
    parts = [first // 10**place % 10 * 10**place for place in reversed(range(level + 1))]
    parts = [part for part in parts if part]
    lines = [f"{part}*{second}={part * second}" for part in parts]
    total = parts[0] * second
    for part in parts[1:]:
        lines.append(f"{total}+{part * second}={total + part * second}")
        total += part * second
    return Made(f"{first}*{second}", f"{first}*{second}=?", tuple(lines), total)


def remainders(draw: Draw, level: int) -> Made:
    """What is left of a number of level + 1 digits divided by one of 1 (level 1) or 2 digits."""
    number, divisor = draw.digits(level + 1), draw.number(3, 9) if level == 1 else draw.digits(2)
    times = number // divisor
    taken = divisor * times
    lines = (f"{divisor}*{times}={taken}", f"{number}-{taken}={number - taken}")
    text = f"{number} mod {divisor}"
    return Made(text, f"{text}=?", lines, number % divisor)


def digit_sums(draw: Draw, level: int) -> Made:
    """The sum of the digits of a number of level + 3 digits."""
    number = draw.digits(level + 3)
    first, *others = (int(digit) for digit in str(number))
    lines: list[str] = []
    for digit in others:
        lines.append(f"{first}+{digit}={first + digit}")
        first += digit
    return Made(str(number), f"sum of the digits of {number}=?", tuple(lines), first)


def equations(draw: Draw, level: int) -> Made:
    """a*x+b=c with a whole solution, negative from level 3 on."""
    top = 10 ** ((level + 1) // 2) * (1 + level % 2)
    factor, x = draw.number(2, 9 + level), draw.number(-top if level > 2 else 2, top)
    offset = draw.number(1, 2 * top)
    result = factor * x + offset
    text = f"{factor}*x+{offset}={result}"
    lines = (f"{result}-{offset}={result - offset}", f"{result - offset}/{factor}={x}")
    return Made(text, f"{text}, x=?", lines, x)


def comparisons(draw: Draw, level: int) -> Made:
    """People who have some more, fewer or times as many as the one before: all together?"""
    start = draw.number(0, len(NAMES) - 1)
    names = [NAMES[(start + i) % len(NAMES)] for i in range(level + 1)]
    thing = THINGS[draw.number(0, len(THINGS) - 1)]
    count = total = draw.number(10, 30 + 20 * level)
    told, lines, sums_ = [f"{names[0]} has {count} {thing}."], [], []
    for name, before in zip(names[1:], names, strict=False):
        number, form = draw.number(2, 9), draw.number(0, 2 if level > 1 else 1)
        words, sign = (("more than", "+"), ("fewer than", "-"), ("times as many as", "*"))[form]
        after = {"+": count + number, "-": count - number, "*": count * number}[sign]
        if after < 0:  # the draw of a long chain can go below nothing: make it more instead
            words, sign, after = "more than", "+", count + number
        told.append(f"{name} has {number} {words} {before}.")
        lines.append(f"{count}{sign}{number}={after}")
        sums_.append(f"{total}+{after}={total + after}")
        count, total = after, total + after
    question = f"{' '.join(told)} How many {thing} together?"
    return Made(" ".join(lines), question, (*lines, *sums_), total)


@dataclass(frozen=True)
class KindOfProblem:
    """A generator and how its problems are solved."""

    make: Callable[[Draw, int], Made]
    skill: str


KINDS: dict[str, KindOfProblem] = {
    "columns": KindOfProblem(columns, "add the digits from the right, with the carry: 7+5+1=13"),
    "sums": KindOfProblem(sums, "go from left to right, one line for each number"),
    "products": KindOfProblem(products, "split the first number: 23*7 is 20*7 and 3*7; add up"),
    "remainders": KindOfProblem(remainders, "take away the largest multiple that fits"),
    "digit_sums": KindOfProblem(digit_sums, "add one digit after the other"),
    "equations": KindOfProblem(equations, "take the offset away, then divide by the factor"),
    "comparisons": KindOfProblem(comparisons, "first how many each one has, then add them up"),
}


def problems(kinds: Sequence[str], level: int, count: int, seed: int) -> Iterator[Problem]:
    """Yield up to `count` distinct problems, the kinds in turn; fewer if there are no more."""
    seen: set[str] = set()
    open_kinds, number, made = list(kinds), dict.fromkeys(kinds, 0), 0
    while open_kinds and made < count:
        for kind in list(open_kinds):
            found = _new(kind, level, seed, number, seen)
            if found is None:
                open_kinds.remove(kind)
            elif made < count:
                made += 1
                yield found


def _new(
    kind: str, level: int, seed: int, number: dict[str, int], seen: set[str]
) -> Problem | None:
    """Return the kind's next problem that was not made before, None if there seems to be none."""
    for _ in range(PATIENCE):
        number[kind] += 1
        made = KINDS[kind].make(Draw("arithmetic", kind, level, seed, number[kind]), level)
        name = f"{kind}/{made.key}"
        if name not in seen:
            seen.add(name)
            return Problem(
                id=name,
                question=made.question,
                answer=str(made.answer),
                working="\n".join(made.lines),
                evidence=made.lines[:-1] or made.lines,
                skill=KINDS[kind].skill,
                kind=kind,
            )
    return None
