"""Retrieval: an index of pages on disk (SQLite FTS5), or BM25 in memory (bm25s)."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import sqlite3
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from selfdistill_cli.core.disk import sync_directory, writing
from selfdistill_cli.core.errors import RunError
from selfdistill_cli.envs.files import cache_folder
from selfdistill_cli.envs.packages import BM25S
from selfdistill_cli.envs.search.pages import Page

log = logging.getLogger(__name__)
TOKEN = re.compile(r"\w+")
MAX_WORDS = 64
TITLE_WEIGHT, TEXT_WEIGHT = 4.0, 1.0
COMMON = (
    "a an and are as at be by did do does for from has have in is it of on or that the this to was "
    "were what when where which who whose with"
)
STOP_WORDS = frozenset(COMMON.split())
"""Words that say nothing alone; pairs with them count."""
LAYOUT = "1"
"""Part of the key of an index: another layout makes another file."""


class Retriever(Protocol):
    """Finds pages by words."""

    def search(self, query: str, limit: int) -> list[int]:
        """Return the numbers of the best pages, best first; ties go by number."""
        ...

    def close(self) -> None: ...


def corpus_key(pages: Sequence[Page]) -> str:
    """Return the SHA-256 of a corpus."""
    digest = hashlib.sha256(LAYOUT.encode())
    for page in pages:
        for part in (page.id, page.title, page.text):
            digest.update(part.encode("utf-8", "replace") + b"\0")
    return digest.hexdigest()


def match_expression(query: str) -> str:
    """Return an FTS5 expression: any word counts, and two neighbours together again."""
    words = [word.lower() for word in TOKEN.findall(query)][:MAX_WORDS]
    named = [word for word in words if word not in STOP_WORDS] or words
    pairs = [f"{first} {second}" for first, second in pairwise(words)]
    return " OR ".join(f'"{part}"' for part in dict.fromkeys([*named, *pairs]))


class FtsIndex:
    """SQLite FTS5 with BM25; titles count four times.

    The file's name ends in the SHA-256 of its bytes, so a damaged one is known and made again, and
    two processes may make it at once: each writes aside and renames.
    """

    def __init__(self, pages: Sequence[Page], folder: Path | None) -> None:
        """Open the index of the pages below `folder`, or make it; None keeps it in memory."""
        if folder is None:
            self._connection = sqlite3.connect(":memory:", check_same_thread=False)
            _fill(self._connection, pages)
        else:
            path = _known(folder, corpus_key(pages)[:16]) or _made(folder, pages)
            uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
            self._connection = sqlite3.connect(uri, uri=True, check_same_thread=False)

    def search(self, query: str, limit: int) -> list[int]:
        """Return the numbers of the best pages."""
        expression = match_expression(query)
        if not expression:
            return []
        rows = self._connection.execute(
            "select rowid from pages where pages match ? "
            f"order by bm25(pages, {TITLE_WEIGHT}, {TEXT_WEIGHT}), rowid limit ?",
            (expression, limit),
        )
        return [row[0] - 1 for row in rows]

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _fill(connection: sqlite3.Connection, pages: Sequence[Page]) -> None:
    connection.execute(
        "create virtual table pages using fts5(title, text, content='', "
        "tokenize='unicode61 remove_diacritics 2')"
    )
    rows = ((i, page.title, page.text) for i, page in enumerate(pages, start=1))
    connection.executemany("insert into pages(rowid, title, text) values (?, ?, ?)", rows)
    connection.execute("insert into pages(pages) values ('optimize')")
    connection.commit()


def _known(folder: Path, key: str) -> Path | None:
    """Return a whole index of that key; damaged ones are deleted."""
    for path in sorted(folder.glob(f"{key}-*.sqlite")):
        with contextlib.suppress(OSError):
            if _digest(path) == path.stem.rpartition("-")[2]:
                return path
            log.warning("the search index %s is damaged; it is made again", path)
            path.unlink()
    return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


def _made(folder: Path, pages: Sequence[Page]) -> Path:
    """Write an index and return where it is. Raises RunError with the remedy."""
    with writing(folder, also=(sqlite3.OperationalError,)):
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=".making-", suffix=".sqlite")
        os.close(handle)
        aside = Path(name)
        try:
            with contextlib.closing(sqlite3.connect(aside)) as connection:
                connection.execute("pragma journal_mode = off")
                _fill(connection, pages)
            path = folder / f"{corpus_key(pages)[:16]}-{_digest(aside)}.sqlite"
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
        sync_directory(folder)
    return path


class Bm25sIndex:
    """BM25 by the package bm25s, in memory; titles are repeated to count four times."""

    def __init__(self, pages: Sequence[Page]) -> None:
        """Index the pages; raises ConfigError if the package is missing."""
        self._model: Any = BM25S.load("env.retriever=bm25s").BM25()
        self._size = len(pages)
        texts = [f"{page.title} " * int(TITLE_WEIGHT) + page.text for page in pages]
        self._model.index([self._words(text) for text in texts], show_progress=False)
        self._known: Any = self._model.vocab_dict

    @staticmethod
    def _words(text: str) -> list[str]:
        from selfdistill_cli.envs.search.answers import normalised

        return TOKEN.findall(normalised(text))

    def search(self, query: str, limit: int) -> list[int]:
        """Return the numbers of the best pages."""
        words = [word for word in self._words(query)[:MAX_WORDS] if word in self._known]
        if not words:
            return []
        scores = self._model.get_scores(words)
        order = sorted(range(self._size), key=lambda i: (-scores[i], i))[:limit]
        return [i for i in order if scores[i] > 0]

    def close(self) -> None:
        """Nothing to close."""


def open_retriever(kind: str, pages: Sequence[Page], index: str | None) -> Retriever:
    """Return the retriever of `env.retriever`, with its index below `env.index`.

    Without `env.index` the user's cache folder is taken; if nothing can be written there, the
    index stays in memory.
    """
    if kind == "bm25s":
        return Bm25sIndex(pages)
    if index is not None:
        return FtsIndex(pages, Path(index))
    try:
        return FtsIndex(pages, cache_folder("search"))
    except (RunError, OSError) as error:
        log.warning("the search index stays in memory: %s", error)
        return FtsIndex(pages, None)
