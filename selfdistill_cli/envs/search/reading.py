"""The sentences of a page that fit some words: excerpts and snippets."""

from __future__ import annotations

import re

from selfdistill_cli.envs.search.answers import normalised

SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"(0-9])")
STEM = 5
"""Letters of a word that must be equal: border, borders."""


def sentences(text: str) -> list[str]:
    """Return the sentences of a text."""
    return [part.strip() for part in SENTENCE.split(text) if part.strip()]


def _stems(text: str) -> set[str]:
    return {word[:STEM] for word in normalised(text).split() if len(word) > 2}


def excerpt(text: str, about: str, limit: int) -> str:
    """Return the whole text, or the sentences that share most words with `about`, in order.

    At most `limit` characters, of which at least one sentence is shown, cut if need be.
    """
    if len(text) <= limit:
        return text
    parts, wanted = sentences(text), _stems(about)
    order = sorted(range(len(parts)), key=lambda i: (-len(_stems(parts[i]) & wanted), i))
    kept: set[int] = set()
    left = limit
    for place in order:
        cost = len(parts[place]) + 1
        if cost <= left + 1:
            kept.add(place)
            left -= cost
    if not kept:
        return parts[order[0]][:limit]
    return " ".join(parts[place] for place in sorted(kept))
