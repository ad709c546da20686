"""What docs/custom_parts.md shows exists, runs, and passes its suites."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from running import SMALL, numbers, run

from selfdistill_cli.config import rules
from selfdistill_cli.config.compose import compose

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "custom_parts.md").read_text()
COMMANDS = re.findall(r"^selfdistill train (.*)$", TEXT, re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with every file of the document, and the examples."""
    place = tmp_path_factory.mktemp("documented")
    (place / "examples").symlink_to(ROOT / "examples")
    for block in re.findall(r"^```(?:python|yaml)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL):
        name = re.match(r"# (my_parts/\S+)\n", block)
        assert name, f"a block without a file name:\n{block}"
        path = place / name[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block)
    return place


@pytest.mark.parametrize("command", COMMANDS)
def test_command_composes_and_breaks_no_rule(folder, command, monkeypatch):
    monkeypatch.chdir(folder)
    words = shlex.split(command)
    assert words[0] == "--config-dir"
    rules.check(compose(words[2:], config_dir=words[1]).settings)


def test_parts_pass_their_suites(folder):
    subprocess.run(
        [sys.executable, "check.py"],
        cwd=folder / "my_parts",
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        check=True,
    )


def test_all_parts_together_train(folder):
    words = ["method=grpo", "env=count", "method/advantage=best_only", "method/sync=slow_start",
             "method/source=hardest_first", "method/terms=with_likelihood",
             "teacher=slow_copy_hinted",
             "+method/coefficient@method.terms.likelihood.coefficient=halving"]  # fmt: skip
    small = [word for word in SMALL if not word.startswith("env.")]
    said = run(folder, "train", "--config-dir", "my_parts/conf", *words, *small,
               "run.max_steps=2", "run.name=r")  # fmt: skip
    last = numbers(folder / "runs/r")[-1]
    assert "env count" in said
    assert last["step"] == 2
    assert last["loss/coefficient_likelihood"] == 1.0
    assert {"reward/share", "teacher/distance", "policy/good_fraction"} <= set(last)


@pytest.mark.parametrize("method", ["grpo", "sft"])
def test_the_environment_of_several_turns_trains(folder, method):
    words = ["--config-dir", "my_parts/conf", f"method={method}", "env=lamps", "env.max_steps=3"]
    group = "method.group_size=1" if method == "sft" else "method.group_size=4"
    small = [word for word in SMALL if not word.startswith(("env.", "method."))]
    said = run(folder, "train", *words, *small, group, "rollout.max_new_tokens=4",
               "run.max_steps=2", f"run.name={method}")  # fmt: skip
    last = numbers(folder / "runs" / method)[-1]
    assert "env lamps" in said
    assert last["step"] == 2
    assert ("loss/cross_entropy" in last) == (method == "sft")
