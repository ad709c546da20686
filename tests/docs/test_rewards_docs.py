"""docs/rewards.md has every reward, every kind of component, and every key with its default."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from documents import BLOCK, ROOT, anchors, number, tables, ticked

from selfdistill_cli.config import catalog
from selfdistill_cli.config.compose import compose
from selfdistill_cli.rewards.recorded import read_scores

TEXT = (ROOT / "docs/rewards.md").read_text(encoding="utf-8")
CONF = [catalog.shipped_dir()]
KINDS = catalog.options(CONF, "reward/component")
COMMON = {"weight", "scale", "clip", "normalize", "on_error", "retries", "error_budget"}


def section(heading: str) -> str:
    return re.split(r"^#+ ", TEXT.split(f"### `{heading}`\n")[1], flags=re.MULTILINE)[0]


def test_every_reward_has_a_row_and_every_kind_a_section() -> None:
    (rewards,) = (t for t in tables(TEXT) if t.header[0] == "reward")
    assert sorted(ticked(row[0])[0] for row in rewards.rows) == catalog.options(CONF, "reward")
    assert [kind for kind in KINDS if kind not in anchors(TEXT)] == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_of_a_kind_is_explained_with_its_default(kind: str) -> None:
    file = yaml.safe_load((CONF[0] / f"reward/component/{kind}.yaml").read_text())
    keys = {k: v for k, v in file.items() if k not in COMMON | {"_target_"}}
    text = section(kind)
    assert [key for key in keys if f"`{key}`" not in text] == []
    for table in tables(text):
        for row in table.rows:
            names, values = ticked(row[0]), row[1].split(", ")
            for name, value in zip(names, values, strict=True):
                default = keys[name]
                if isinstance(default, str) and default.startswith("$"):
                    assert value == f"`{default[2:-1]}`", name
                else:
                    assert default == ("???" if value == "none" else number(value)), name
    (common,) = (t for t in tables(TEXT) if t.header[0] == "key of each component")
    assert {ticked(row[0])[0] for row in common.rows} == COMMON


def test_the_sum_and_the_recorded_lines_of_the_page_are_read(tmp_path: Path) -> None:
    (block,) = (text for language, text in BLOCK.findall(TEXT) if language == "yaml")
    path = tmp_path / block.splitlines()[0].removeprefix("# ")
    path.parent.mkdir(parents=True)
    path.write_text(block)
    reward = compose(["reward=tidy"], str(tmp_path / "my_conf")).settings.reward
    weights = {name: part.weight for name, part in reward.components.items()}  # type: ignore[attr-defined]
    assert weights == {"tests": 0.5, "solved": 0.5, "lint": 0.1}
    (lines,) = (text for _, text in BLOCK.findall(TEXT) if text.startswith("{"))
    (tmp_path / "rated.jsonl").write_text(lines)
    assert len(read_scores(tmp_path / "rated.jsonl")) == len(lines.splitlines()) == 3
    assert {json.loads(line)["task"] for line in lines.splitlines()} == {"train 17", "train 18"}
