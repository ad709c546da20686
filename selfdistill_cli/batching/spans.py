"""Between the characters of a text and the tokens that it was sampled as."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

REPLACEMENT = "\ufffd"


def character_ends(ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> list[int]:
    """Where the text of each token ends in `decode(ids)`, in characters.

    The text is never encoded again. A token that ends inside a character has no text; the one
    that completes the character has all of it. Every token is decoded together with the token
    before, because a tokenizer may write a token differently at the start of a text.
    """
    ends: list[int] = []
    first, read, total, known = 0, 0, 0, ""
    for i in range(len(ids)):
        text = decode(ids[first : i + 1])
        if len(text) > len(known) and not text.endswith(REPLACEMENT):
            total += len(text) - len(known)
            first, read = read, i + 1
            known = decode(ids[first:read])
        ends.append(total)
    return ends


def tokens_in(spans: Sequence[tuple[int, int]], ends: Sequence[int]) -> list[bool]:
    """Whether each token has a character in one of the spans [start, end)."""
    starts = [0, *ends[:-1]]
    return [
        start < end and any(a < end and start < b for a, b in spans)
        for start, end in zip(starts, ends, strict=True)
    ]


def first_tokens_of_lines(text: str, ends: Sequence[int]) -> list[bool]:
    """Whether each token is on a later line than the token before, or the first of all.

    A token is on the line of its last character that is not a line break: the break itself
    belongs to the line that it ends, a break with the next line's indentation to that next line.
    """
    line_of = [0, *accumulate(int(character == "\n") for character in text)]
    out: list[bool] = []
    start, line = 0, -1
    for end in ends:
        visible = start + len(text[start:end].rstrip("\n"))
        here = max(line, line_of[max(start, visible - 1)], 0)
        out.append(here > line)
        start, line = end, here
    return out
