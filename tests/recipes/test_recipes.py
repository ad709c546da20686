"""Every recipe on the embedded policy: three steps, its own part at work, an exact resume.

The command runs in this process, with Python's warnings as errors.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from recipe_table import NO_RAMP, PLAIN, RECIPES
from running import final_files, numbers

from selfdistill_cli.cli.main import main

pytestmark = pytest.mark.filterwarnings("error")
STEPS = 3
SMALL = (
    "run.num_threads=1", f"run.max_steps={STEPS}", "run.trajectories_every=0", "tracker=none",
    "batch.tasks_per_step=4", "eval.every=0", "env.sandbox.workers=1",
    "checkpoint.every=1", "checkpoint.keep=3",
)  # fmt: skip

Train = Callable[..., Path]


@pytest.fixture
def train(tmp_path, monkeypatch, capsys) -> Train:
    """Run `selfdistill train method=NAME WORDS`; return the run's directory."""
    monkeypatch.chdir(tmp_path)

    def call(method: str, *words: str, name: str = "straight") -> Path:
        code = main(["train", f"method={method}", *SMALL, f"run.name={name}", *words])
        said = capsys.readouterr()
        assert code == 0, said.out + said.err
        assert "warning" not in (said.out + said.err).lower()
        return tmp_path / "runs" / name

    return call


def state(run_directory: Path) -> Any:
    """Everything but weights in the newest checkpoint."""
    path = run_directory / "checkpoints" / "latest" / "training_state.pt"
    return torch.load(path, weights_only=True)


def difference(a: Any, b: Any, where: str = "state") -> str | None:
    """The first place where two nested containers of tensors differ, None if they are equal."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        same = a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
        return None if same else where
    if isinstance(a, dict) and isinstance(b, dict):
        if a.keys() != b.keys():
            return f"{where}: {sorted(map(str, a.keys() ^ b.keys()))}"
        found = (difference(a[key], b[key], f"{where}.{key}") for key in a)
        return next((x for x in found if x), None)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        if len(a) != len(b):
            return f"{where}: lengths"
        pairs = enumerate(zip(a, b, strict=True))
        found = (difference(x, y, f"{where}[{i}]") for i, (x, y) in pairs)
        return next((x for x in found if x), None)
    return None if a == b else f"{where}: {a} and {b}"


def resumed(train: Train, straight: Path, method: str, *words: str) -> Path:
    """The same run as it was after its last step but one, continued by a new process's objects."""
    again = straight.with_name("again")
    shutil.copytree(straight, again, symlinks=True)
    shutil.rmtree(again / "checkpoints" / f"step_{STEPS:06d}")
    return train(method, *words, name="again")


def test_every_shipped_recipe_is_in_the_table(request):
    shipped = {path.stem for path in (request.config.rootpath / "conf/method").glob("*.yaml")}
    assert shipped == set(RECIPES)


@pytest.mark.parametrize("method", sorted(RECIPES))
def test_recipe_learns_resumes_exactly_and_needs_its_part(train, method):
    recipe = RECIPES[method]
    straight = train(method, *recipe.words)
    lines = numbers(straight)
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    shown = "\n".join(f"{k}: {[x.get(k) for x in lines]}" for k in sorted(lines[-1]))
    assert recipe.sees(lines), shown

    again = resumed(train, straight, method, *recipe.words)
    assert (again / "metrics.jsonl.bak-1").is_file(), "nothing was cut off, so nothing was redone"
    assert numbers(again) == lines
    assert final_files(again) == final_files(straight)
    assert difference(state(again), state(straight)) is None

    for number, words in enumerate(recipe.without):
        other = train(method, *recipe.words, *words, name=f"without_{number}")
        assert final_files(other) != final_files(straight), f"{words} changes nothing"


@pytest.mark.parametrize("method", sorted(PLAIN))
def test_ramp_zero_is_the_plain_method_bit_for_bit(train, method):
    plain = train(PLAIN[method], "method.group_size=4", name="plain")
    other = train(method, "method.group_size=4", *NO_RAMP)
    assert final_files(other) == final_files(plain)


def test_flat_groups_are_replaced_and_counted(train):
    words = ("method.group_size=4",)
    once = numbers(train("dapo", *words, "method.source.max_rounds=1", name="once"))
    more = numbers(train("dapo", *words))
    flat = [line["rollout/flat_group_fraction"] for line in once]
    assert max(flat) > 0, "no flat group was played, so none could be replaced"
    for plain, replaced in zip(once, more, strict=True):
        has_flat = plain["rollout/flat_group_fraction"] > 0
        assert (replaced["tokens/sampled"] > plain["tokens/sampled"]) == has_flat
