"""Names that a corpus knows, found again in texts: links, and candidates for answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

WORD = re.compile(r"\.[a-z]{2}\b|\w[\w'-]*")
CAPITALISED = re.compile(
    r"\b[A-Z][\w'-]*(?: (?:of |the |and )?[A-Z][\w'-]*)*|\b\d[\d,.]*\d\b|\b\d\b"
)
QUOTED = re.compile(r"[\"“]([^\"”]{2,80})[\"”]")


class Lexicon:
    """Names, with what each one means by kind; names are told apart by case."""

    def __init__(self, kinds: Mapping[str, Mapping[str, str]]) -> None:
        """Keep names by their words: `{"registration prefix CX": {"prefix": "CX"}}`."""
        self._kinds = kinds
        self._by_words = {tuple(WORD.findall(name)): name for name in self._kinds}
        self._longest = max(map(len, self._by_words), default=0)
        self._found: dict[str, tuple[str, ...]] = {}

    def meaning(self, name: str, kind: str) -> str | None:
        """Return what a name means as something of that kind, None if it is none."""
        return self._kinds.get(name, {}).get(kind)

    def mentions(self, text: str) -> tuple[str, ...]:
        """Return the names in a text, each once, in their order; the longest name wins."""
        if text not in self._found:
            if len(self._found) > 50_000:
                self._found.clear()
            self._found[text] = tuple(dict.fromkeys(self._scan(WORD.findall(text))))
        return self._found[text]

    def _scan(self, words: list[str]) -> Iterable[str]:
        place = 0
        while place < len(words):
            for length in range(min(self._longest, len(words) - place), 0, -1):
                name = self._by_words.get(tuple(words[place : place + length]))
                if name is not None:
                    yield name
                    place += length - 1
                    break
            place += 1


def phrases(text: str) -> list[str]:
    """Return what looks like a name in a text of any kind: quoted, capitalised, or a number."""
    found = QUOTED.findall(text) + CAPITALISED.findall(text)
    return list(dict.fromkeys(phrase.strip() for phrase in found))
