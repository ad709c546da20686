"""Every file of a real checkpoint deleted, cut short, or with one bit turned over."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from assembled import assembled, environment
from running import numbers, run
from safetensors.torch import load_file

from selfdistill_cli.cli import checkpoints as command
from selfdistill_cli.core.errors import CheckpointError
from selfdistill_cli.policies.huggingface import shipped_tiny
from selfdistill_cli.training.checkpoints import MANIFEST, Checkpoints, problem_with
from selfdistill_cli.training.loop import train
from selfdistill_cli.training.settings import CheckpointSettings

SETTINGS = CheckpointSettings(every=1, keep=1, best_metric="eval/success", background=False)
LORA = ("policy=hf", f"policy.path={shipped_tiny()}", "policy.lora.rank=4", "optim.lr=1e-2")
WORDS = ("method=bidirectional", "method.group_size=2", *LORA, "run.max_steps=2",
         "checkpoint.keep=9")  # fmt: skip
Harm = Callable[[Path], object]


def deleted(file: Path) -> None:
    file.unlink()


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def turned_over(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of two steps: adapters, a critic, a slow copy, a controller."""
    root = tmp_path_factory.mktemp("trained")
    with environment(root, *WORDS) as env, assembled(root, env, *WORDS) as run:
        train(run)
        return run.checkpoints.root


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """A copy of them, to be harmed."""
    return Path(shutil.copytree(trained, tmp_path / "checkpoints", symlinks=True))


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def assert_the_one_before_is_used(root: Path, harmed: Path) -> None:
    before = {path: path.read_bytes() for path in files_of(root / "step_000001")}
    said: list[str] = []
    newest = Checkpoints(root, SETTINGS).newest(said.append)
    assert newest is not None, harmed
    assert newest.step == 1, harmed
    assert len(said) == 1
    # A wrong checksum in the manifest looks like a wrong file.
    assert harmed.name in said[0] or harmed.name == MANIFEST, said
    assert "step 2 is damaged" in said[0]
    assert {path: path.read_bytes() for path in files_of(newest.path)} == before
    assert os.readlink(root / "latest") == "step_000001"
    assert not (root / "best").is_symlink() or (root / "best").exists()
    kept = root / "damaged_step_000002"
    assert kept.is_dir()
    shutil.rmtree(kept)


def harm_each_file(root: Path, harms: tuple[Harm, ...] = (deleted, cut_short, turned_over)) -> int:
    """Harm every file of the newest checkpoint in every way; return how many there are."""
    newest = root / "step_000002"
    whole = root.parent / "whole"
    shutil.copytree(newest, whole)
    files = [path.relative_to(newest) for path in files_of(newest)]
    for name in files:
        for harm in harms:
            harm(newest / name)
            assert_the_one_before_is_used(root, newest / name)
            shutil.copytree(whole, newest)
    return len(files)


def test_each_file_is_missed(folder: Path) -> None:
    names = {str(path.relative_to(folder)) for path in files_of(folder / "step_000002")}
    for name in ("manifest.json", "training_state.pt", "policy/adapter_model.safetensors",
                 "policy/value_head.safetensors", "teacher/adapter_model.safetensors"):  # fmt: skip
        assert f"step_000002/{name}" in names
    assert harm_each_file(folder) == len(names) > 10


def small_file(folder: Path) -> None:
    (folder / "weights.bin").write_bytes(b"w" * 100)


def test_no_bit_of_the_manifest_matters_unnoticed(tmp_path: Path) -> None:
    """Turned over, it is named, or it stands where it says nothing about the checkpoint."""
    checkpoints = Checkpoints(tmp_path, SETTINGS)
    folder = checkpoints.save(2, {"policy": small_file}, {"x": 1}, best_step=2).path
    manifest = folder / MANIFEST
    good = manifest.read_bytes()
    meant = json.loads(good)
    for place in range(len(good)):
        manifest.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        if problem_with(folder) is None:
            found = json.loads(manifest.read_bytes())
            assert (found["files"], found["step"]) == (meant["files"], meant["step"]), place


@pytest.mark.parametrize("harm", [deleted, cut_short, turned_over])
def test_without_a_whole_one_nothing_is_moved_or_deleted(folder: Path, harm: Harm) -> None:
    for step in (1, 2):
        harm(folder / f"step_{step:06d}" / "policy" / "adapter_model.safetensors")
    before = {path: path.read_bytes() for path in files_of(folder)}
    for _ in range(2):
        with pytest.raises(CheckpointError, match="no whole checkpoint is left") as caught:
            Checkpoints(folder, SETTINGS).newest(pytest.fail)
        assert str(caught.value).count("adapter_model.safetensors") == 2
        assert "Put a copy back" in str(caught.value)
    assert command.prune(folder, keep=1, aside=True) == 1
    assert {path: path.read_bytes() for path in files_of(folder)} == before


def test_links_that_lead_nowhere_or_to_damage(folder: Path) -> None:
    checkpoints = Checkpoints(folder, SETTINGS)
    for name in ("latest", "best"):
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to("step_000099")
        with pytest.raises(CheckpointError, match=f"checkpoint={name}: no such.*steps: 1, 2"):
            checkpoints.named(name)
        link.unlink()
        link.symlink_to("step_000002")
    cut_short(folder / "step_000002" / "training_state.pt")
    for name in ("latest", "best"):
        with pytest.raises(CheckpointError, match=f"checkpoint={name} is damaged: .*training_stat"):
            checkpoints.named(name)
    assert_the_one_before_is_used(folder, folder / "step_000002" / "training_state.pt")
    for name in ("latest", "best"):
        (folder / name).unlink(missing_ok=True)
    (folder / "latest").symlink_to("step_000099")
    newest = checkpoints.newest(pytest.fail)
    assert newest is not None
    assert (newest.step, os.readlink(folder / "latest")) == (1, "step_000001")


def test_the_only_good_one_is_never_deleted_to_make_room(folder: Path) -> None:
    """keep=1 while the one on top is damaged: the good one stays until another is whole."""
    turned_over(folder / "step_000002" / "policy" / "adapter_model.safetensors")
    checkpoints = Checkpoints(folder, SETTINGS)
    newest = checkpoints.newest(lambda text: None)
    assert newest is not None

    def fails(path: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(Exception, match="No space left"):
        checkpoints.save(2, {"policy": fails}, {}, best_step=-1)
    assert checkpoints.steps() == [1]
    assert problem_with(newest.path) is None
    checkpoints.save(2, {"policy": small_file}, {"x": 1}, best_step=-1)
    assert checkpoints.steps() == [2]


def test_a_checkpoint_under_another_steps_name_is_not_taken_for_it(folder: Path) -> None:
    shutil.rmtree(folder / "step_000002")
    shutil.copytree(folder / "step_000001", folder / "step_000002")
    problem = problem_with(folder / "step_000002")
    assert problem is not None
    assert problem.endswith("is that of step 1, expected step 2")


def test_nothing_of_the_base_model_is_in_a_checkpoint_of_adapters(trained: Path) -> None:
    """Not a row of its weights, in any precision, in any file: policy, teacher and optimizer."""
    base = load_file(shipped_tiny() / "model.safetensors")
    rows = [tensor.flatten()[-32:] for tensor in base.values() if tensor.numel() >= 32]
    rows = [row for row in rows if row.unique().numel() > 8]
    assert len(rows) > 20
    kinds = (torch.float32, torch.float16, torch.bfloat16)
    searched = {row.to(kind).view(torch.uint8).numpy().tobytes() for row in rows for kind in kinds}
    folder = trained / "step_000002"
    for file in files_of(folder):
        data = file.read_bytes()
        assert not any(text in data for text in searched), file
    names = {key for file in folder.rglob("adapter_model.*") for key in load_file(file)}
    assert names
    assert all(".lora_A." in name or ".lora_B." in name for name in names)
    assert not list(folder.rglob("model*.safetensors"))


@pytest.mark.slow
def test_each_file_of_several_ranks_is_missed_and_the_run_goes_on(tmp_path):
    words = [
        "train", "method=step_kd", "run.num_threads=1", "batch.tasks_per_step=2", "eval.every=0",
        "method.group_size=2", "env.sandbox.workers=1", "tracker=none", "run.name=r",
        "checkpoint.every=1", "checkpoint.keep=9", "zero=zero2", "launcher=local",
        "launcher.num_processes=2",
    ]  # fmt: skip
    run(tmp_path, *words, "run.max_steps=2")
    directory = tmp_path / "runs/r"
    before = numbers(directory)
    assert harm_each_file(directory / "checkpoints") > 10
    cut_short(directory / "checkpoints/step_000002/training_state.pt")
    said = run(tmp_path, *words, "run.max_steps=3")
    assert "checkpoint of step 2 is damaged: " in said
    assert "continuing after step 1 " in said
    assert numbers(directory)[:2] == before
    assert [line["step"] for line in numbers(directory)] == [1, 2, 3]
