"""Skills in an agent's own prompt."""

from __future__ import annotations

import json

import pytest

from selfdistill_cli.core.errors import DataError
from selfdistill_cli.core.types import Message
from selfdistill_cli.envs.agents.skills import (
    Skills,
    read_skills,
    with_skills,
    without_general,
)

BUILTIN = Skills(general=("Look first.",), task={"walk": ("Step by step.",)})
MESSAGES = (Message(role="system", content="s"), Message(role="user", content="Go."))


def test_skills_stand_before_the_task():
    shown = with_skills(MESSAGES, BUILTIN, "walk")
    assert shown[0] == MESSAGES[0]
    assert shown[1]["content"] == (
        "General skills:\n- Look first.\nSkills for this task:\n- Step by step.\nGo."
    )
    assert with_skills(MESSAGES, BUILTIN, "run")[1]["content"].endswith("Look first.\nGo.")
    assert with_skills(MESSAGES, None, "walk") == MESSAGES


def test_pruning_takes_the_general_skills():
    shown = with_skills(MESSAGES, BUILTIN, "walk")
    pruned = without_general(shown, BUILTIN)
    assert pruned[1]["content"] == "Skills for this task:\n- Step by step.\nGo."
    assert without_general(with_skills(MESSAGES, BUILTIN, "run"), BUILTIN) == MESSAGES
    assert without_general(MESSAGES, None) is None
    only = Skills(general=(), task=BUILTIN.task)
    assert without_general(with_skills(MESSAGES, only, "walk"), only) is None


def test_a_file_of_skills(tmp_path):
    path = tmp_path / "skills.json"
    path.write_text(json.dumps({"general": ["One\nline ", " "], "task": {"walk": ["Slow."]}}))
    found = read_skills(str(path), BUILTIN, ["walk"])
    assert found == Skills(general=("One line",), task={"walk": ("Slow.",)})
    assert read_skills(None, BUILTIN, ["walk"]) is None
    assert read_skills("builtin", BUILTIN, ["walk"]) is BUILTIN


MISTAKES = {
    "key": ({"generl": []}, r"did you mean 'general'"),
    "kind": ({"task": {"walc": []}}, r"there is no kind \"walc\".*did you mean 'walk'"),
    "text": ({"general": "x"}, '"general".*expected a list of strings'),
    "number": ({"task": {"walk": [1]}}, r'"task\.walk".*expected a list of strings'),
    "list": ({"task": []}, '"task": found list'),
    "nothing": ({}, "no skill in it"),
    "no object": ([], "found list"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_in_the_file_is_told(tmp_path, case):
    record, said = MISTAKES[case]
    path = tmp_path / "skills.json"
    path.write_text(json.dumps(record))
    with pytest.raises(DataError, match=said) as caught:
        read_skills(str(path), BUILTIN, ["walk"])
    assert str(caught.value).startswith(f"env.prompt_skills={path}")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match=r"No such file.*expected a JSON file, builtin, or null"):
        read_skills(str(tmp_path / "none.json"), BUILTIN, [])
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(DataError, match="not JSON"):
        read_skills(str(tmp_path / "broken.json"), BUILTIN, [])
