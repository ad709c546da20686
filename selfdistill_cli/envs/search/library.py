"""A corpus that can be searched and read."""

from __future__ import annotations

from collections.abc import Sequence

from selfdistill_cli.envs.search.answers import normalised
from selfdistill_cli.envs.search.index import Retriever
from selfdistill_cli.envs.search.lexicon import Lexicon
from selfdistill_cli.envs.search.pages import Page


class Library:
    """Pages, their index and the names in them."""

    def __init__(self, pages: Sequence[Page], retriever: Retriever, lexicon: Lexicon) -> None:
        """Keep the parts."""
        self.pages, self.lexicon = {page.id: page for page in pages}, lexicon
        self._order, self._retriever = list(pages), retriever
        self._by_subject: dict[str, list[Page]] = {}
        for page in pages:
            self._by_subject.setdefault(normalised(page.subject), []).append(page)
        self._known: dict[tuple[str, int], tuple[Page, ...]] = {}

    def search(self, query: str, limit: int) -> tuple[Page, ...]:
        """Return the best pages: those whose subject is the query, then by the retriever."""
        key = (query, limit)
        if key not in self._known:
            if len(self._known) > 100_000:
                self._known.clear()
            named = self._by_subject.get(normalised(query), [])
            ranked = [self._order[i] for i in self._retriever.search(query, limit)]
            self._known[key] = tuple(dict.fromkeys([*named, *ranked]))[:limit]
        return self._known[key]

    def has_subject(self, name: str) -> bool:
        """Whether a page is about it."""
        return normalised(name) in self._by_subject

    def close(self) -> None:
        """Close the index."""
        self._retriever.close()
