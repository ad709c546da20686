"""What a dry run finds in the user's files: that they can be read, and have tasks where needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from selfdistill_cli.config import rules
from selfdistill_cli.config.compose import compose
from selfdistill_cli.config.data_rules import problems_with_files
from selfdistill_cli.core.errors import ConfigError

CODE = {"prompt": "def f(x):\n", "entry_point": "f",
        "test": "def check(candidate):\n    assert candidate(1) == 1\n"}  # fmt: skip
SPLIT = ("train", "validation", "test")
FILES = {
    "code": ("env.data=code.jsonl", [CODE]),
    "math": ("env.data=math.jsonl", [{"question": "1+1?", "answer": "2"}]),
    "tools": ("env.data=tools.jsonl", [{"prompt": "Go.", "calls": []}]),
    "search": ("env.questions=search.jsonl", [{"question": "Who?", "answer": "Ann"}]),
}
MORE = {
    "tools": ["env.tools=schemas.json", "env.format=native", "env.show_choices=false"],
    "search": ["env.corpus=corpus.jsonl"],
}
SCHEMA = {"name": "go", "parameters": {"type": "object", "properties": {}}}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schemas.json").write_text(json.dumps([SCHEMA]))
    (tmp_path / "corpus.jsonl").write_text('{"id": "a", "title": "Ann", "text": "Ann is."}\n')
    return tmp_path


def problems(env: str, *words: str) -> list[str]:
    key = FILES[env][0]
    settings = compose(["method=grpo", f"env={env}", key, *MORE.get(env, []), *words]).settings
    return rules.violations(settings) or problems_with_files(settings)


def write(env: str, splits: tuple[str, ...]) -> None:
    key, (record,) = FILES[env]
    names = {"code": "task_id", "math": "id", "tools": "id", "search": "id"}
    lines = [{**record, names[env]: f"x{i}", "split": split} for i, split in enumerate(splits)]
    Path(key.partition("=")[2]).write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("env", FILES)
def test_a_split_without_tasks_is_told(env: str) -> None:
    write(env, SPLIT)
    assert problems(env) == []
    write(env, ("train", "train", "test"))
    (said,) = problems(env)
    assert said.startswith("eval.panel: split 'validation' has no task (found train 2, ")
    assert "eval.every=0" in said
    assert problems(env, "eval.every=0") == []
    write(env, ("validation",))
    (said,) = problems(env)
    assert said.startswith("method.source.split: split 'train' has no task")


@pytest.mark.parametrize("env", FILES)
def test_a_broken_line_is_told(env: str) -> None:
    write(env, SPLIT)
    place = Path(FILES[env][0].partition("=")[2])
    place.write_text(place.read_text() + "{broken\n")
    (said,) = problems(env)
    assert f"{FILES[env][0]}, line 4: not JSON" in said


@pytest.mark.parametrize("key", ["env.corpus", "env.questions"])
def test_a_file_of_search_that_is_not_there_is_told(key: str) -> None:
    write("search", SPLIT)
    (said,) = problems("search", f"{key}=MISSING")
    assert said.startswith(f"{key}: got 'MISSING', no such file; expected a .jsonl")


@pytest.mark.parametrize(("given", "missing"), [("corpus", "questions"), ("questions", "corpus")])
def test_half_of_a_search_is_told_with_what_to_do(given: str, missing: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(["env=search", f"env.{given}=mine.jsonl"])
    said = str(caught.value)
    assert said.startswith(f"env.{missing}: got null, expected a .jsonl or .jsonl.gz file of ")
    assert f"add env.{missing}=FILE, or leave env.{given} out" in said


def test_built_in_problems_that_leave_nothing_to_validate_are_told() -> None:
    settings = compose(["method=grpo", "env=math", "env.num_tasks=2"]).settings
    assert any("split 'validation' has no task" in said for said in problems_with_files(settings))


@pytest.mark.parametrize("component", ["recorded", "learned"])
def test_a_reward_that_reads_a_path_says_of_which_kind(component: str, tmp_path: Path) -> None:
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    file.write_text("")
    good, bad = (file, folder) if component == "recorded" else (folder, file)
    key = f"reward.components.{component}.path"

    def said(path: Path) -> list[str]:
        return rules.violations(compose([f"reward={component}", f"{key}={path}"]).settings)

    assert said(good) == []
    found = "that is a folder" if component == "recorded" else "that is a file"
    assert said(bad)[0].startswith(f"{key}: got '{bad}', {found}; expected the ")
