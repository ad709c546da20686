"""Checkpoints in the background: the same bytes, nothing silent, one write at a time."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from assembled import assembled, environment
from small_policies import small_policy

from selfdistill_cli.core.errors import RunError
from selfdistill_cli.training.background import Writer, on_host
from selfdistill_cli.training.checkpoints import Checkpoints, problem_with
from selfdistill_cli.training.loop import train
from selfdistill_cli.training.settings import CheckpointSettings
from selfdistill_cli.training.state_compare import compare_runs

SETTINGS = CheckpointSettings(every=1, keep=9, best_metric="eval/success", background=True)


class Slow:
    """Writes model folders, each one only when it is let go."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.begun = threading.Event()

    def fill(self, folder: Path, tensors) -> None:
        self.begun.set()
        assert self.go_on.wait(60)
        torch.save(dict(tensors), folder / "weights.pt")


def test_a_save_returns_before_it_is_written_and_holds_what_was_then(tmp_path):
    slow = Slow()
    writer = Writer(Checkpoints(tmp_path, SETTINGS), slow.fill, background=True)
    weight, moments = torch.ones(3), {"a": [torch.zeros(2)]}
    writer.save(1, {"policy": {"w": weight}}, {"moments": moments}, best_step=1)
    assert slow.begun.wait(60)
    weight.fill_(7.0)
    moments["a"][0].fill_(7.0)
    moments["a"].append(torch.ones(1))
    assert not (tmp_path / "step_000001").exists()
    writer.check()
    slow.go_on.set()
    assert writer.steps() == [1], "it waits for the write"
    checkpoint = writer.checkpoints.named("latest")
    assert torch.equal(torch.load(checkpoint.policy / "weights.pt")["w"], torch.ones(3))
    (kept,) = checkpoint.state()["moments"]["a"]
    assert torch.equal(kept, torch.zeros(2))


def test_the_next_save_waits_for_the_one_before(tmp_path):
    slow = Slow()
    writer = Writer(Checkpoints(tmp_path, SETTINGS), slow.fill, background=True)
    writer.save(1, {"policy": {}}, {}, best_step=1)
    threading.Timer(0.3, slow.go_on.set).start()
    writer.save(2, {"policy": {}}, {}, best_step=1)
    assert problem_with(tmp_path / "step_000001") is None
    assert writer.steps() == [1, 2]


def full_disk(folder: Path, tensors) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("hears", ["check", "wait", "steps", "save"])
def test_what_went_wrong_is_raised_once_by_whoever_comes_next(tmp_path, hears):
    writer = Writer(Checkpoints(tmp_path, SETTINGS), full_disk, background=True)
    writer.save(1, {"policy": {}}, {}, best_step=1)
    thread = writer._thread
    assert thread is not None
    thread.join(60)
    again = (2, {"policy": {}}, {}, 1) if hears == "save" else ()
    with pytest.raises(RunError, match=r"step_000001 could not be written: No space left"):
        getattr(writer, hears)(*again)
    writer.wait()
    assert list(tmp_path.iterdir()) == []
    writer.save(3, {"policy": {}}, {}, best_step=1)
    said: list[str] = []
    writer.end(said.append)
    assert len(said) == 1
    assert "step_000003 could not be written" in said[0]


def test_copies_share_what_was_shared_and_keep_their_kind():
    whole = torch.arange(6.0).reshape(2, 3)
    given = {"a": whole, "b": whole.detach(), "row": whole[1], "more": (OrderedDict(c=whole), [1])}
    copied = on_host(given)
    assert copied["a"].data_ptr() == copied["b"].data_ptr() == copied["more"][0]["c"].data_ptr()
    assert copied["a"].data_ptr() != whole.data_ptr()
    assert copied["row"].data_ptr() != copied["a"].data_ptr()
    assert torch.equal(copied["row"], whole[1])
    assert type(copied["more"][0]) is OrderedDict
    assert copied["more"][1] == [1]


def test_a_copy_of_a_policy_is_written_as_the_policy_itself(tmp_path):
    """Tied weights are one tensor before and after the copy, so they are written once."""
    policy = small_policy("llama")
    policy.add_value_head()
    policy.save(tmp_path / "at_once")
    copied = on_host(policy.held())
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.zero_()
    policy.save(tmp_path / "copied", copied)
    names = sorted(p.name for p in (tmp_path / "at_once").iterdir())
    assert names == sorted(p.name for p in (tmp_path / "copied").iterdir())
    for name in names:
        assert (tmp_path / "at_once" / name).read_bytes() == (
            tmp_path / "copied" / name
        ).read_bytes(), name


def test_kill_9_during_a_background_write_leaves_the_earlier_checkpoint(tmp_path):
    program = textwrap.dedent("""
        import sys, time
        from pathlib import Path
        from selfdistill_cli.training.background import Writer
        from selfdistill_cli.training.checkpoints import Checkpoints
        from selfdistill_cli.training.settings import CheckpointSettings

        def fill(folder, tensors):
            (folder / "weights.bin").write_bytes(b"w" * 1000)
            if "step_000002" in str(folder):
                print("half", flush=True)
                time.sleep(60)

        settings = CheckpointSettings(
            every=1, keep=1, best_metric="eval/success", background=True
        )
        writer = Writer(Checkpoints(Path(sys.argv[1]), settings), fill, background=True)
        writer.save(1, {"policy": {}}, {}, 1)
        writer.save(2, {"policy": {}}, {}, 1)
        time.sleep(60)
    """)
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    checkpoints = Checkpoints(tmp_path, SETTINGS)
    assert (tmp_path / ".step_000002.partial").is_dir()
    newest = checkpoints.newest(pytest.fail)
    assert newest is not None
    assert newest.step == 1
    assert os.readlink(tmp_path / "latest") == "step_000001"


WORDS = ("method=step_kd", "method.group_size=4", "eval.every=1", "eval.num_tasks=2",
         "eval.samples_per_task=1", "run.max_steps=3", "checkpoint.keep=9")  # fmt: skip


def test_a_run_writes_the_same_bytes_and_a_failed_write_ends_it(tmp_path, monkeypatch):
    """With a slow copy, whose folder is written from a copy of it while the student moves on."""
    with environment(tmp_path, *WORDS) as env:
        for name, background in (("at_once", "false"), ("behind", "true")):
            words = (*WORDS, f"checkpoint.background={background}")
            with assembled(tmp_path, env, *words, name=name) as run:
                train(run)
        for step in (1, 2, 3):
            for at_once in (tmp_path / "at_once/checkpoints" / f"step_{step:06d}").rglob("*"):
                behind = tmp_path / "behind" / at_once.relative_to(tmp_path / "at_once")
                assert behind.is_dir() == at_once.is_dir(), behind
            found = compare_runs(tmp_path / "at_once", tmp_path / "behind", step)
            assert not any(found.values()), found
        assert os.readlink(tmp_path / "behind/checkpoints/latest") == "step_000003"

        words = (*WORDS, "checkpoint.background=true")
        with assembled(tmp_path, env, *words, name="full") as run:
            usage = shutil.disk_usage(tmp_path)
            monkeypatch.setattr(shutil, "disk_usage", lambda path: _free(usage, run))
            with pytest.raises(RunError, match="no room on the disk"):
                train(run)
            assert run.checkpoints.steps() == [1]
            assert problem_with(run.checkpoints.root / "step_000001") is None


def _free(usage, run):
    """As much as there is until the first checkpoint, then nothing."""
    return usage._replace(free=10) if run.checkpoints.steps() else usage
