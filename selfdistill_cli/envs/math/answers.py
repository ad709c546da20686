"""Where the answer stands in a response, how it is written, and when two are the same number."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from selfdistill_cli.envs.math.settings import AnswerFormat

MAX_ANSWER = 2000
"""Characters of an answer; a longer one is wrong without being looked at."""
MAX_DIGITS = 300
"""Digits, and size of an exponent, up to which a number is read as a number."""
BOXES = ("\\boxed", "\\fbox")
UNSIGNED = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
IN_TEXT = re.compile(rf"(?<![\w.])-?(?:{UNSIGNED})(?:/[0-9]+)?")
NUMBER = re.compile(rf"([-+]?)({UNSIGNED})(?:[eE]([-+]?[0-9]{{1,4}}))?")
NAMED = re.compile(r"^\s*[A-Za-z]\w{0,3}\s*=")
TEN = re.compile(r"\\(?:times|cdot)\s*10\s*\^\s*(?:\{\s*-?[0-9]{1,3}\s*\}|[0-9])")
CALCULATION = re.compile(
    r"[+*!√=<>|]|\^(?!\s*\{?\s*\\circ)|-\s*-|[\w)}\]]\s*-|[0-9)}\]]\s*/\s*[0-9(\\{]|"
    r"\\(?!(?:[dt]?frac|text|textbf|mathrm|mathbf|left|right|boxed|circ|quad)(?![A-Za-z]))[A-Za-z]"
)
FRACTION = re.compile(r"([-+]?)\\[dt]?frac\{(-?[0-9]+)\}\{(-?[0-9]+)\}")
TAG = ("<answer>", "</answer>")
REQUESTS: dict[str, str] = {
    "hash": "End with #### and the answer.",
    "boxed": "End with the answer in \\boxed{}.",
    "tag": "End with <answer>the answer</answer>.",
    "number": "End with the answer.",
    "any": "End with #### and the answer.",
}


@dataclass(frozen=True)
class Found:
    """What was read from a response."""

    answer: str | None
    """The answer alone, None if there is none."""
    formatted: bool
    """Whether it stands where the format wants it (`any`: anywhere but as a bare number)."""


def find_answer(response: str, form: AnswerFormat) -> Found:
    """Return the last answer of a response. What a model thinks (`<think>`) is no answer."""
    said = response.rpartition("</think>")[2]
    if "<think>" in said:
        return Found(None, False)
    if form != "any":
        answer = _READERS[form](said)
        return Found(answer, answer is not None)
    for name in ("boxed", "hash", "tag", "number"):
        answer = _READERS[name](said)
        if answer is not None:
            return Found(answer, name != "number")
    return Found(None, False)


def render(working: str, answer: str, form: AnswerFormat) -> str:
    """Return a response that ends with the answer in the wanted form."""
    last = {
        "boxed": f"\\boxed{{{answer}}}",
        "tag": f"{TAG[0]}{answer}{TAG[1]}",
        "number": answer,
    }.get(form, f"#### {answer}")
    return f"{working}\n{last}" if working else last


def boxed(text: str) -> str | None:
    """Return what the last box holds; None without one, or if its braces do not close."""
    start, name = max((text.rfind(name), name) for name in BOXES)
    if start < 0:
        return None
    rest = text[start + len(name) :].lstrip()
    if not rest.startswith("{"):
        return rest.split(maxsplit=1)[0].rstrip("$.") or None if rest else None
    depth = 0
    for place, letter in enumerate(rest[: 2 * MAX_ANSWER]):
        depth += (letter == "{") - (letter == "}")
        if depth == 0:
            return rest[1:place].strip() or None
    return None


def _hashed(text: str) -> str | None:
    before, found, rest = text.rpartition("####")
    del before
    return rest.strip().partition("\n")[0].strip() or None if found else None


def _tagged(text: str) -> str | None:
    before, found, _ = text.rpartition(TAG[1])
    _, opened, inside = before.rpartition(TAG[0])
    return inside.strip() or None if found and opened else None


def _last_number(text: str) -> str | None:
    found = [match.group() for match in IN_TEXT.finditer(text[-10 * MAX_ANSWER :])]
    return found[-1] if found else None


_READERS = {"boxed": boxed, "hash": _hashed, "tag": _tagged, "number": _last_number}


def plain(text: str) -> str:
    """Return an answer without what says nothing: dollars, `\\text{}`, spaces, a last full stop."""
    text = text.strip().removeprefix("$").removesuffix("$").strip()
    text = re.sub(r"\\text\{([^{}]*)\}", r"\1", text)
    text = text.replace("\\$", "").replace("\\!", "").replace("\\,", "").removeprefix("$")
    return " ".join(text.removesuffix(".").split()).casefold()


def number(text: str) -> Fraction | None:
    """Return the number that a text is, None for others: `1,234`, `3/4`, `\\frac{3}{4}`, `1e3`."""
    text = plain(text).replace(" ", "")
    if len(text) > MAX_DIGITS:
        return None
    fraction = FRACTION.fullmatch(text)
    if fraction is not None:
        sign, top, bottom = fraction.groups()
        return _quotient(Fraction(int(sign + "1") * int(top)), int(bottom))
    above, slash, below = text.partition("/")
    top = _decimal(above)
    if not slash or top is None:
        return top
    return _quotient(top, int(below)) if re.fullmatch("[0-9]+", below) else None


def is_calculation(text: str) -> bool:
    """Whether a text that should be a number leaves it to the reader to work it out.

    `83*8`, the question itself, is equal to 664; so are `\\sqrt{440896}` and `663+1`, and
    `41 = 42` says two numbers. Units, `x=`, fractions and powers of ten are no calculation.
    """
    text = TEN.sub("", NAMED.sub("", text.strip().removeprefix("+"), count=1))
    return CALCULATION.search(text) is not None


def _quotient(top: Fraction, bottom: int) -> Fraction | None:
    return top / bottom if bottom else None


def _decimal(text: str) -> Fraction | None:
    found = NUMBER.fullmatch(text)
    if found is None or abs(int(found.group(3) or 0)) > MAX_DIGITS:
        return None
    value = Fraction(found.group(2).replace(",", "")) * Fraction(10) ** int(found.group(3) or 0)
    return -value if found.group(1) == "-" else value


def same(expected: str, given: str) -> bool | None:
    """Return whether two answers are equal as texts or as numbers.

    None where a text that is no number is not the same text: an expression may still be equal.
    """
    if plain(expected) == plain(given):
        return True
    right, said = number(expected), number(given)
    if right is None or said is None:
        return None
    # `84/2` is the question, not its answer 42; `1/2` for 0.5 is an answer.
    undone = said.denominator == 1 and _divides(given) and not _divides(expected)
    return right == said and not undone


def _divides(text: str) -> bool:
    return "/" in text or "frac" in text
