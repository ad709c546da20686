"""Text from outside, made fit for files, terminals and tokenizers."""

from __future__ import annotations

import re

SURROGATE = re.compile(r"[\ud800-\udfff]")
UNREADABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def readable(text: str) -> str:
    """Return the text with lone surrogates and control characters replaced; keeps \\n and \\t."""
    return UNREADABLE.sub(REPLACEMENT, text.replace("\r\n", "\n"))


def encodable(text: str) -> str:
    """Return the text with lone surrogates replaced, so that it has a UTF-8 form."""
    return SURROGATE.sub(REPLACEMENT, text)
