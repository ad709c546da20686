"""Parts of a user's own folder: they work, they resume, and what is wrong with one is told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from running import SMALL, final_files, numbers, run

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.core.parts import build_part, members
from selfdistill_cli.core.protocols import Coefficient, Credit, Reward
from selfdistill_cli.core.settings import Settings

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "custom_credit"
WORDS = ["train", "method=grpo", *SMALL]
OWN = ["--config-dir", str(EXAMPLE / "conf"), "method/credit=mine", "reward=short_programs"]


def test_example_runs_shows_and_resumes(tmp_path):
    run(tmp_path, *WORDS, *OWN, "run.max_steps=3", "run.name=straight")
    run(tmp_path, *WORDS, *OWN, "run.max_steps=2", "run.name=resumed")
    said = run(tmp_path, *WORDS, *OWN, "run.max_steps=3", "run.name=resumed")
    assert "continuing after step 2" in said
    straight, resumed = tmp_path / "runs/straight", tmp_path / "runs/resumed"
    lengths = [line["credit/usual_length"] for line in numbers(straight)[1:]]
    assert lengths[0] == 16.0
    assert len(set(lengths)) == 3, "the credit learned nothing"
    assert all(line["reward/length"] < 0 for line in numbers(straight)[1:])
    assert numbers(resumed)[-1] == numbers(straight)[-1]
    assert final_files(resumed) == final_files(straight)
    run(tmp_path, *WORDS, *OWN[:2], OWN[3], "run.max_steps=1", "run.name=uniform")
    plain, weighted = numbers(tmp_path / "runs/uniform")[1], numbers(straight)[1]
    assert plain["reward/mean"] == weighted["reward/mean"]
    assert plain["policy/grad_norm"] != weighted["policy/grad_norm"]


def test_example_passes_its_own_check():
    subprocess.run(
        [sys.executable, str(EXAMPLE / "check.py")],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        check=True,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The example, to be broken."""
    shutil.copytree(EXAMPLE, tmp_path / "mine", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "mine"


CREDIT, YAML, REWARD = "early_tokens.py", "conf/method/credit/mine.yaml", "short_programs.py"
BROKEN = {
    "a key with a typo": (
        YAML, "strength:", "strenght:",
        "method.credit.strenght: EarlyTokensSettings has no such setting; did you mean 'strength'?",
    ),
    "a value of another type": (
        YAML, "0.5", "much", "method.credit.strength: got 'much' (str), expected a number",
    ),
    "a value out of range": (
        YAML, "0.5", "1.5", "method.credit.strength: got 1.5, expected a number from 0 to 1",
    ),
    "a module that raises": (
        CREDIT, "import numpy as np", "import numpy as np\n1 / 0",
        "importing early_tokens failed: ZeroDivisionError: division by zero",
    ),
    "a module that cannot be parsed": (
        CREDIT, "class EarlyTokens:", "class EarlyTokens", "importing early_tokens failed: Syntax",
    ),
    "no such class": (
        YAML, "EarlyTokensSettings", "EarlyTokenSettings",
        "module early_tokens has no class 'EarlyTokenSettings'; did you mean 'EarlyTokensSettings'",
    ),
    "a missing method": (
        CREDIT, "def reweight", "def reweigh",
        "method.credit: early_tokens.EarlyTokens has no reweight; did you mean 'reweigh'?",
    ),
    "an implementation that is not there": (
        CREDIT, '"early_tokens:EarlyTokens"', '"early_tokens:EarlyToken"',
        "module early_tokens has no 'EarlyToken'; did you mean 'EarlyTokens'?",
    ),
    "a reward without its method": (
        REWARD, "def score", "def scores",
        "reward: short_programs.ShortPrograms has no score; did you mean 'scores'?",
    ),
}  # fmt: skip


class Half:
    """A reward that only says so."""

    def __init__(self, settings):
        pass


@pytest.mark.parametrize(
    ("implementation", "expected"),
    [
        (f"{__name__}:Half", "Half has no score; expected everything that core.protocols.Reward"),
        (f"{__name__}:Halve", f"module {__name__} has no 'Halve'; did you mean 'Half'?"),
        ("no_such_module:Half", "importing no_such_module failed: ModuleNotFoundError"),
        ("no_such_module", "implementation is 'no_such_module'; expected 'module:Class'"),
    ],
)
def test_what_an_implementation_lacks_is_named(implementation, expected):
    settings = type("HalfSettings", (Settings,), {"implementation": implementation})()
    with pytest.raises(ConfigError, match=r"^reward: ") as caught:
        build_part("reward", settings, Reward)
    assert expected in str(caught.value)


def test_members_of_a_protocol_include_inherited_and_annotated_ones():
    own = ["needs", "reweight", "after_step"]
    assert members(Credit) == ["state_dict", "load_state_dict", *own]
    assert "__call__" in members(Coefficient)


@pytest.mark.parametrize("mistake", BROKEN)
def test_a_broken_part_is_told_before_the_first_step(copy, mistake):
    file, old, new, expected = BROKEN[mistake]
    text = (copy / file).read_text()
    assert old in text
    (copy / file).write_text(text.replace(old, new, 1))
    own = ["--config-dir", str(copy / "conf"), *OWN[2:]]
    said = run(copy.parent, *WORDS, *own, "run.max_steps=1", "run.name=r", expect=2)
    assert expected in said
    assert "Traceback" not in said
    assert not (copy.parent / "runs/r/metrics.jsonl").exists()
