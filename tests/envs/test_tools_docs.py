"""docs/envs/tools.md says what conf and code have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from tool_envs import DEFAULTS

from selfdistill_cli.config import rules
from selfdistill_cli.config.compose import compose
from selfdistill_cli.envs.tools.settings import PANELS, TEMPLATE_CALLS
from selfdistill_cli.envs.tools.toolbox import FUNCTIONS

TEXT = (Path(__file__).parents[2] / "docs/envs/tools.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^selfdistill train ([^#\n]*)", TEXT, re.MULTILINE)


def test_the_table_of_settings_is_the_yaml_file():
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \|", TEXT, re.MULTILINE)
    assert {name: yaml.safe_load(value) for name, value in rows} == DEFAULTS


def test_tools_kinds_and_panels_are_named():
    for name in (*FUNCTIONS, *TEMPLATE_CALLS):
        assert f"`{name}`" in TEXT
    for name in PANELS:
        assert f"bfcl:{name}" in TEXT


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_compose(command, tmp_path):
    (tmp_path / "own.py").touch()
    (tmp_path / "own.jsonl").touch()
    words = [
        word.replace("FILE", str(tmp_path / "own")).replace("DIR", str(tmp_path))
        for word in command.split()
    ]
    settings = compose([*words, "tracker=none"]).settings
    rules.check(settings)
    assert settings.reward.weights["success"] == 1.0
    assert settings.rollout.max_turns >= settings.env.max_steps


def test_full_size_settings_follow_the_paper():
    words = ["experiment=tools_gear_paper", "policy.path=.", "tracker=none"]
    settings = compose(words).settings
    assert settings.method.name == "gear_paper"
    assert settings.env.format == "native"
    assert settings.teacher.hints == ["answer"]
    assert settings.policy.lora.rank == 0
