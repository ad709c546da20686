"""Indexes: made once, whole or made again, and searched with any text."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_envs import search

from selfdistill_cli.core.errors import RunError
from selfdistill_cli.envs.search.index import FtsIndex, cache_folder, open_retriever
from selfdistill_cli.envs.search.lexicon import Lexicon, phrases
from selfdistill_cli.envs.search.library import Library
from selfdistill_cli.envs.search.pages import Page
from selfdistill_cli.envs.search.reading import excerpt

PAGES = [
    Page(id="1", title="Niger: land", text="The highest point of Niger is Mont Idoukal."),
    Page(id="2", title="Nigeria: land", text="The highest point of Nigeria is Chappal Waddi."),
    Page(id="3", title="Nigeria: state", text="Nigeria borders Niger. Its capital is Abuja."),
    Page(id="4", title="Rivers", text="The Niger flows through Niger, Niger, Niger and Nigeria."),
]


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_an_index_is_made_once(tmp_path):
    first = FtsIndex(PAGES, tmp_path)
    made = files(tmp_path)
    stamp = (tmp_path / made[0]).stat().st_mtime_ns
    second = FtsIndex(PAGES, tmp_path)
    assert files(tmp_path) == made
    assert len(made) == 1
    assert (tmp_path / made[0]).stat().st_mtime_ns == stamp
    assert first.search("chappal", 3) == second.search("chappal", 3) == [1]
    FtsIndex(PAGES[:3], tmp_path)
    assert len(files(tmp_path)) == 2


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_index_is_made_again(tmp_path, damage, caplog):
    FtsIndex(PAGES, tmp_path).close()
    [path] = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes({"cut": data[:5000], "flipped": data, "empty": b""}[damage])
    with caplog.at_level(logging.WARNING):
        assert FtsIndex(PAGES, tmp_path).search("abuja", 2) == [2]
    assert "is damaged; it is made again" in caplog.text
    assert len(files(tmp_path)) == 1


MAKING = """
import sys
from pathlib import Path
from selfdistill_cli.envs.search.index import FtsIndex
from selfdistill_cli.envs.search.pages import Page
pages = [Page(id=str(i), title=f"t{i}", text=f"word{i} " * 50) for i in range(3000)]
print(FtsIndex(pages, Path(sys.argv[1])).search("word7", 1))
"""


def test_two_processes_at_once(tmp_path):
    started = [
        subprocess.Popen(
            [sys.executable, "-c", MAKING, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    assert [process.communicate(timeout=100)[0].strip() for process in started] == ["[7]", "[7]"]
    assert all(process.returncode == 0 for process in started)
    assert not [name for name in files(tmp_path) if name.startswith(".making")]


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("x")
    with pytest.raises(RunError, match="could not be written"):
        open_retriever("fts5", PAGES, str(blocked))
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert cache_folder("search") == Path(blocked) / "selfdistill/search"
    with caplog.at_level(logging.WARNING):
        assert open_retriever("fts5", PAGES, None).search("abuja", 1) == [2]
    assert "stays in memory" in caplog.text


def test_words_are_found_without_accents_and_in_any_case(tmp_path):
    pages = [*PAGES, Page(id="5", title="Togo", text="Its capital is Lom\u00e9.")]
    index = FtsIndex(pages, None)
    assert index.search("LOME", 1) == index.search("lom\u00e9", 1) == [4]
    assert index.search("the of", 9)
    assert index.search("", 3) == index.search("?!", 3) == index.search("zzz", 3) == []


def test_pages_about_the_query_come_first():
    library = Library(PAGES, FtsIndex(PAGES, None), Lexicon({}))
    assert next(page.id for page in library.search("Niger", 3)) == "1"
    assert [page.id for page in library.search("nigeria", 2)] == ["2", "3"]
    assert library.has_subject("The Nigeria")
    assert not library.has_subject("Nig")


INDEX = FtsIndex(PAGES, None)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200) | st.sampled_from(['"', '"" OR', "NEAR(", "title:", "* ^ -", "\x00"]))
def test_any_text_is_a_query(text):
    assert all(0 <= number < len(PAGES) for number in INDEX.search(text, 3))


def test_bm25s_ranks_like_fts5():
    pytest.importorskip("bm25s")
    index = open_retriever("bm25s", PAGES, None)
    assert index.search("Chappal Waddi", 2)[0] == 1
    assert index.search("abuja", 4) == [2]
    assert index.search("zzz ?", 4) == []
    env = search(retriever="bm25s")
    solved = [env.expert(task, 0) is not None for task in env.tasks("test")[:100]]
    assert sum(solved) >= 80


def test_names_are_found_again_the_longest_first():
    lexicon = Lexicon(
        {"Guinea": {"c": "Guinea"}, "New Guinea": {"c": "NG"}, ".uy": {"code": ".uy"}}
    )
    assert lexicon.mentions("New Guinea, Guinea and guinea; .uy.") == (
        "New Guinea",
        "Guinea",
        ".uy",
    )
    assert lexicon.meaning("New Guinea", "c") == "NG"
    assert lexicon.meaning("New Guinea", "code") is None
    assert lexicon.meaning("Elsewhere", "c") is None
    assert phrases('Who wrote "a song" in Old Town in 1875?')[:2] == ["a song", "Who"]


def test_an_excerpt_keeps_what_fits_the_question():
    text = "Cats sleep. The border to Chad is long. Dogs bark. Its capital is Niamey."
    assert excerpt(text, "borders", 40) == "Cats sleep. The border to Chad is long."
    assert excerpt(text, "what is the capital", 30) == "Its capital is Niamey."
    assert excerpt(text, "x", 500) == text
    assert excerpt("a" * 50, "x", 16) == "a" * 16


def test_searches_are_fast():
    """A generous bound, for a busy machine: 2 ms each is usual."""
    env = search()
    found = env._search.collection("test").library
    tasks = env.tasks("test")[:50]
    start = time.process_time()
    for task in tasks:
        found.search(task.meta["steps"][0]["query"], 5)
    assert (time.process_time() - start) / len(tasks) < 0.05
