"""Checkpoints on a real file system: atomic, verified, pruned."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap

import pytest
import torch
from safetensors import SafetensorError

from selfdistill_cli.core.errors import CheckpointError, ConfigError, RunError
from selfdistill_cli.training.checkpoints import MANIFEST, Checkpoints, problem_with
from selfdistill_cli.training.initial import policy_folder
from selfdistill_cli.training.settings import CheckpointSettings

SETTINGS = CheckpointSettings(every=2, keep=2, best_metric="eval/success", background=False)


def save_policy(folder):
    (folder / "weights.bin").write_bytes(b"w" * 1000)


def saved(root, steps, best=1):
    checkpoints = Checkpoints(root, SETTINGS)
    for step in steps:
        checkpoints.save(step, {"policy": save_policy}, {"x": torch.arange(3), "step": step}, best)
    return checkpoints


def test_newest_restores_what_was_saved(tmp_path):
    checkpoints = saved(tmp_path, [2, 4])
    newest = checkpoints.newest(pytest.fail)
    assert newest.step == 4
    assert newest.state()["step"] == 4
    assert (newest.policy / "weights.bin").stat().st_size == 1000
    assert os.readlink(tmp_path / "latest") == "step_000004"


def test_prune_keeps_the_newest_and_the_best(tmp_path):
    checkpoints = saved(tmp_path, [1, 2, 3, 4, 5], best=1)
    assert checkpoints.steps() == [1, 4, 5]
    assert checkpoints.named("best").step == 1


@pytest.mark.parametrize("harm", ["truncate", "alter", "remove", "manifest", "no_manifest"])
def test_damage_is_named_and_the_one_before_is_used(tmp_path, harm):
    checkpoints = saved(tmp_path, [2, 4])
    folder = tmp_path / "step_000004"
    weights, manifest = folder / "policy" / "weights.bin", folder / MANIFEST
    if harm == "truncate":
        weights.write_bytes(b"w" * 999)
    elif harm == "alter":
        weights.write_bytes(b"w" * 999 + b"x")
    elif harm == "remove":
        weights.unlink()
    elif harm == "manifest":
        manifest.write_text("{")
    else:
        manifest.unlink()
    said = []
    assert checkpoints.newest(said.append).step == 2
    blamed = "manifest.json" if "manifest" in harm else "weights.bin"
    assert len(said) == 1
    assert blamed in said[0]
    assert (tmp_path / "damaged_step_000004").is_dir()


def test_no_whole_checkpoint_is_an_error_that_names_the_files(tmp_path):
    checkpoints = saved(tmp_path, [2])
    (tmp_path / "step_000002" / "training_state.pt").unlink()
    for _ in range(2):  # the second call must not start over in silence
        with pytest.raises(CheckpointError, match=r"training_state\.pt is missing"):
            checkpoints.newest(lambda text: None)


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), SafetensorError("No space left (error 28)")]
)
def test_failed_write_leaves_earlier_checkpoints_alone(tmp_path, error):
    checkpoints = saved(tmp_path, [2])

    def full_disk(folder):
        raise error

    with pytest.raises(RunError, match=r"step_000004 could.*No space left.*before is intact"):
        checkpoints.save(4, {"policy": full_disk}, {}, 2)
    assert checkpoints.newest(pytest.fail).step == 2
    assert [p.name for p in tmp_path.iterdir() if "partial" in p.name] == []


def test_kill_while_writing_leaves_the_old_checkpoint(tmp_path):
    saved(tmp_path, [2])
    program = textwrap.dedent("""
        import os, signal, sys
        from pathlib import Path
        from selfdistill_cli.training.checkpoints import Checkpoints
        from selfdistill_cli.training.settings import CheckpointSettings

        def half(folder):
            (folder / "weights.bin").write_bytes(b"w")
            os.kill(os.getpid(), signal.SIGKILL)

        settings = CheckpointSettings(every=2, keep=2, best_metric="eval/success", background=False)
        Checkpoints(Path(sys.argv[1]), settings).save(4, {"policy": half}, {}, 2)
    """)
    killed = subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=120)
    assert killed.returncode == -9
    assert Checkpoints(tmp_path, SETTINGS).newest(pytest.fail).step == 2
    saved(tmp_path, [4])
    assert Checkpoints(tmp_path, SETTINGS).newest(pytest.fail).step == 4


def test_unknown_checkpoint_lists_the_known(tmp_path):
    checkpoints = saved(tmp_path, [2, 4], best=2)
    with pytest.raises(CheckpointError, match="steps: 2, 4"):
        checkpoints.named("7")
    with pytest.raises(CheckpointError, match="expected latest, best"):
        checkpoints.named("bset")
    assert checkpoints.named("4").step == 4


def test_a_run_that_was_copied_without_links_goes_on(tmp_path):
    saved(tmp_path / "a", [2, 4], best=2)
    shutil.copytree(tmp_path / "a", tmp_path / "b")  # `latest` and `best` are folders now
    copied = Checkpoints(tmp_path / "b", SETTINGS)
    assert (copied.named("latest").step, copied.named("best").step) == (4, 2)
    assert copied.newest(pytest.fail).step == 4
    assert os.readlink(tmp_path / "b" / "latest") == "step_000004"
    assert problem_with(tmp_path / "b" / "copy_of_latest") is None, "nothing is deleted"
    saved(tmp_path / "b", [6], best=6)
    assert os.readlink(tmp_path / "b" / "best") == "step_000006"


def test_a_run_without_the_wanted_checkpoint_is_not_called_no_run(tmp_path):
    (tmp_path / "r").mkdir()
    saved(tmp_path / "r" / "checkpoints", [2])
    (tmp_path / "r" / "config.yaml").write_text("{}")
    with pytest.raises(ConfigError, match=r"^policy\.init_from=r:9: checkpoint=9: no such"):
        policy_folder("r:9", str(tmp_path), "policy.init_from")
    with pytest.raises(ConfigError, match="and no run: 's' is no run directory"):
        policy_folder("s", str(tmp_path), "policy.init_from")


def test_manifest_covers_every_other_file(tmp_path):
    saved(tmp_path, [2])
    folder = tmp_path / "step_000002"
    files = json.loads((folder / MANIFEST).read_text())["files"]
    present = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert present == {*files, MANIFEST}
    assert problem_with(folder) is None


def test_rewind_sets_later_checkpoints_aside(tmp_path):
    checkpoints = saved(tmp_path, [1, 2, 3, 4, 5], best=4)
    assert checkpoints.steps() == [4, 5]
    assert checkpoints.rewind(4).step == 4
    assert checkpoints.steps() == [4]
    assert os.readlink(tmp_path / "latest") == "step_000004"
    assert problem_with(tmp_path / "rewound_step_000005") is None
    with pytest.raises(CheckpointError, match=r"resume\.step=5: .* expected one of the steps: 4"):
        checkpoints.rewind(5)
    assert checkpoints.steps() == [4]


def test_no_room_is_told_before_anything_is_written(tmp_path, monkeypatch):
    checkpoints = saved(tmp_path, [2])
    usage = shutil.disk_usage(tmp_path)
    full = usage._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    with pytest.raises(RunError, match=r"no room on the disk .*next checkpoint"):
        checkpoints.save(4, {"policy": pytest.fail}, {}, best_step=2)
    assert checkpoints.steps() == [2]
    assert problem_with(tmp_path / "step_000002") is None
