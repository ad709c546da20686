"""A corpus and questions of the user's own."""

from __future__ import annotations

import gzip
import json

import pytest
from search_envs import FULL, play, search

from selfdistill_cli.core.errors import DataError
from selfdistill_cli.testing import check_env

PAGES = [
    {"id": "a", "title": "Blue Lamp", "text": "The Blue Lamp was made by Ada Ohm. It is a lamp."},
    {"id": "b", "title": "Ada Ohm", "text": "Ada Ohm was born in Lund. She liked tea."},
    {"id": "c", "title": "Tea", "text": "Tea is hot."},
]
QUESTION = {
    "question": "Where was the maker of the Blue Lamp born?",
    "answers": ["Lund", "Lund, Sweden"],
    "evidence": ["a", "b"],
    "split": "train",
}
OTHERS = [
    {"question": "Is tea hot?", "answer": "yes", "split": "test"},
    {"question": "Who made the Blue Lamp?", "answer": "Ada Ohm", "split": "validation", "id": "q"},
]


def written(path, records):
    text = "".join(json.dumps(record) + "\n" for record in records)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return str(path)


def own(tmp_path, pages=PAGES, questions=(QUESTION, *OTHERS), **changes):
    return search(
        corpus=written(tmp_path / "pages.jsonl.gz", pages),
        questions=written(tmp_path / "questions.jsonl", questions),
        **FULL | changes,
    )


def test_an_own_corpus_is_searched_and_read(tmp_path):
    env = own(tmp_path)
    [task] = env.tasks("demonstrations")
    texts = env.expert(task, 0)
    outcome = play(env, task, texts)
    assert (outcome["success"], outcome["evidence"]) == (1.0, 1.0)
    assert play(env, task, ["<action>answer lund sweden</action>"])["success"] == 1.0
    evidence = env.hint("evidence", task, (), (), None, 0).text
    assert evidence.splitlines()[-1] == "Ada Ohm was born in Lund."
    [other] = env.tasks("test")
    assert env.expert(other, 0) is None
    assert env.hint("evidence", other, (), (), None, 0) is None
    assert "[b] Ada Ohm" in "\n".join(
        m["content"] for m in env.episode(task, 0).step("<action>search Ohm</action>").observation
    )


def test_choices_follow_titles_and_capitals(tmp_path):
    env = own(tmp_path, format="choices", show_choices=True)
    [task] = env.tasks("demonstrations")
    outcome = play(env, task, env.expert(task, 0))
    assert outcome["success"] == 1.0
    assert outcome["actions"][0] == "search Blue Lamp"


def test_without_a_split_the_id_decides(tmp_path):
    many = [{"question": f"question {i}?", "answer": "x"} for i in range(200)]
    env = own(tmp_path, questions=many)
    counts = {split: len(env.tasks(split)) for split in ("train", "validation", "test")}
    assert sum(counts.values()) == 200
    assert all(counts[split] > 5 for split in counts)
    some = own(tmp_path, questions=many[:100])
    kept = {task.id for task in some.tasks("test")}
    assert kept <= {task.id for task in env.tasks("test")}
    with pytest.raises(DataError, match=r'no question in split.*with "evidence"'):
        env.tasks("demonstrations")


MISTAKES = {
    "no title": ([{"id": "a", "titel": "x", "text": "y"}], [], r'line 1, field "title": found no'),
    "two ids": ([PAGES[0], PAGES[0]], [], r'line 2, field "id": found .a., also on line 1'),
    "no page": ([], [], "found no page"),
    "number": ([{"id": "a", "title": ["x"], "text": "y"}], [], "expected a string"),
    "no question": (PAGES, [], "found no question"),
    "no answer": (PAGES, [{"question": "q"}], r'field "answer": found no such field'),
    "answers": (PAGES, [{"question": "q", "answers": "x"}], "expected a list of strings"),
    "evidence": (PAGES, [{**QUESTION, "evidence": ["z"]}], "expected ids of pages of env.corpus"),
    "split": (PAGES, [{**QUESTION, "split": "dev"}], "expected one of train, validation, test"),
    "twice": (PAGES, [QUESTION, QUESTION], "expected an id of its own"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_in_a_file_names_file_line_and_field(tmp_path, case):
    pages, questions, said = MISTAKES[case]
    with pytest.raises(DataError, match=said) as caught:
        own(tmp_path, pages, questions).tasks("train")
    assert "jsonl" in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    env = own(tmp_path)
    (tmp_path / "questions.jsonl").write_text("[1]\n")
    with pytest.raises(DataError, match="line 1: found a JSON list; expected an object"):
        env.tasks("train")
    (tmp_path / "questions.jsonl").write_text("{\n")
    with pytest.raises(DataError, match="line 1: not JSON"):
        env.tasks("train")
    (tmp_path / "pages.jsonl.gz").write_bytes(b"no gzip")
    with pytest.raises(DataError, match="cannot be read"):
        own_again(tmp_path).tasks("train")
    (tmp_path / "pages.jsonl.gz").unlink()
    with pytest.raises(DataError, match=r"env\.corpus=.*no such file"):
        own_again(tmp_path).tasks("train")


def own_again(tmp_path):
    return search(
        corpus=str(tmp_path / "pages.jsonl.gz"), questions=str(tmp_path / "questions.jsonl")
    )


def test_the_fingerprint_follows_the_files(tmp_path):
    first = own(tmp_path).fingerprint()
    assert own(tmp_path, questions=[QUESTION]).fingerprint() != first
    assert own(tmp_path).fingerprint() == first
    assert search().fingerprint() == search().fingerprint() != first


def test_the_contract_of_environments(tmp_path):
    check_env(lambda: own(tmp_path), actions=("", "<action>search lamp</action>"))
