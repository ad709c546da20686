"""Disks, locks, clocks and models that fail under a run: it says so, and nothing is lost."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest
from mounts import fill, read_only, resize, small_disk
from running import final_files, finish, last_step, numbers, run, start, wait_until

from selfdistill_cli.policies.huggingface import shipped_tiny
from selfdistill_cli.training.checkpoints import problem_with

TRAIN = [
    "train", "method=grpo", "run.num_threads=1", "batch.tasks_per_step=2", "method.group_size=2",
    "eval.every=0", "env.sandbox.workers=1", "tracker=none", "run.name=r", "checkpoint.every=2",
]  # fmt: skip
DIRECTORY = Path("runs/r")


def whole_steps(directory: Path) -> list[int]:
    """Steps of the checkpoints, all of which must be whole."""
    folders = sorted((directory / "checkpoints").glob("step_*"))
    assert [problem for folder in folders if (problem := problem_with(folder))] == []
    return [int(folder.name[5:]) for folder in folders]


def test_a_disk_that_is_too_small_is_found_before_the_first_step(tmp_path):
    words = [*TRAIN, "run.max_steps=6"]
    with small_disk(tmp_path / "runs", 10):
        said = run(tmp_path, *words, expect=1)
        assert re.search(r"no room on the disk of runs/r: .* are free, and 3 checkpoints", said)
        assert "Traceback" not in said
        assert last_step(tmp_path / DIRECTORY) == -1
        resize(tmp_path / "runs", 60)
        run(tmp_path, *words)
        assert [line["step"] for line in numbers(tmp_path / DIRECTORY)] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "background", ["true", pytest.param("false", marks=pytest.mark.slow)]
)
def test_a_disk_that_fills_up_costs_no_earlier_checkpoint(tmp_path, background):
    words = [*TRAIN, f"checkpoint.background={background}"]
    directory = tmp_path / DIRECTORY
    with small_disk(tmp_path / "runs", 60):
        process = start(tmp_path, *words, "run.max_steps=400")
        wait_until(process, lambda: (directory / "checkpoints/step_000004").is_dir())
        fill(tmp_path / "runs/filler", leave_megabytes=2)
        code, out, err = finish(process)
        assert code == 1, out + err
        assert "no room on the disk of runs/r" in err
        assert "the same command again" in " ".join(err.split())
        assert "Traceback" not in out + err
        kept = whole_steps(directory)
        assert kept[-1] >= 4
        before = {line["step"]: line for line in numbers(directory)}
        (tmp_path / "runs/filler").unlink()
        said = run(tmp_path, *words, f"run.max_steps={last_step(directory) + 2}")
        assert f"continuing after step {kept[-1]} " in said
        after = {line["step"]: line for line in numbers(directory)}
        assert list(after) == list(range(1, max(before) + 3))
        assert {step: after[step] for step in before} == before


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    words = [*TRAIN, "run.max_steps=2"]
    (tmp_path / "runs").mkdir()
    with read_only(tmp_path / "runs"):
        said = run(tmp_path, *words, expect=2)
        assert "run.root: the run directory runs/r cannot be made: Read-only file system" in said
    run(tmp_path, *words)
    with read_only(tmp_path / "runs"):
        said = run(tmp_path, *words, "run.max_steps=4", expect=2)
        assert "runs/r/.lock cannot be opened: Read-only file system" in said
    assert whole_steps(tmp_path / DIRECTORY) == [2]


@pytest.mark.slow
def test_a_folder_that_turns_read_only_costs_no_earlier_checkpoint(tmp_path):
    directory = tmp_path / DIRECTORY
    process = start(tmp_path, *TRAIN, "run.max_steps=400")
    wait_until(process, lambda: (directory / "checkpoints/step_000002").is_dir())
    with read_only(directory / "checkpoints"):
        code, out, err = finish(process)
    assert code == 1, out + err
    assert re.search(r"step_\d+ could not be written: Read-only file system", err)
    assert "Traceback" not in out + err
    kept = whole_steps(directory)
    assert json.loads((directory / "run.json").read_text())["status"] == "failed"
    said = run(tmp_path, *TRAIN, f"run.max_steps={kept[-1] + 2}")
    assert f"continuing after step {kept[-1]} " in said


@pytest.mark.slow
def test_one_process_at_a_time_and_a_dead_ones_lock_is_no_lock(tmp_path):
    directory = tmp_path / DIRECTORY
    first = start(tmp_path, *TRAIN, "run.max_steps=400")
    wait_until(first, lambda: last_step(directory) >= 2)
    said = run(tmp_path, *TRAIN, "run.max_steps=400", expect=2)
    assert f"runs/r is in use by process {first.pid}; wait for it, or choose another" in said
    assert first.poll() is None, "the first one goes on"
    first.send_signal(signal.SIGKILL)
    finish(first)
    assert (directory / ".lock").read_text() == str(first.pid), "it had no time to tidy up"
    said = run(tmp_path, *TRAIN, f"run.max_steps={last_step(directory) + 1}")
    assert "continuing after step" in said


JUMPING = """
import itertools, time
real, calls = time.time, itertools.count()
# Forward a year, back a year, and so on: what a machine does whose clock is being set.
time.time = lambda: real() + (-1) ** next(calls) * 3.15e7
time.time_ns = lambda: int(time.time() * 1e9)
"""


@pytest.mark.slow
def test_clocks_that_jump_decide_nothing(tmp_path, monkeypatch):
    """During the run the clock jumps; between attempts the older files look newer."""
    run(tmp_path, *TRAIN, "run.max_steps=6", "run.name=straight", "checkpoint.keep=9")
    (tmp_path / "paths").mkdir()
    (tmp_path / "paths/sitecustomize.py").write_text(JUMPING)
    paths = [str(tmp_path / "paths"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    words = [*TRAIN, "checkpoint.keep=9", "run.stop_after=1h"]
    run(tmp_path, *words, "run.max_steps=4")
    directory = tmp_path / DIRECTORY
    for path in directory.rglob("*"):
        if not path.is_symlink():
            year = 1990 if "step_000004" in str(path) else 2040
            os.utime(path, (year * 3.15e7 - 1970 * 3.15e7,) * 2)
    said = run(tmp_path, *words, "run.max_steps=6")
    assert "continuing after step 4" in said
    assert whole_steps(directory) == [2, 4, 6]
    assert numbers(directory) == numbers(tmp_path / "runs/straight")
    assert final_files(directory) == final_files(tmp_path / "runs/straight")
    times = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    for line in times:
        measured = {key: x for key, x in line.items() if key.startswith("time/")}
        assert all(0 <= x < 1e7 for x in measured.values()), measured


def test_nothing_asks_what_time_it_is():
    """Durations are of clocks that only go forward, and no decision hangs on a date.

    Dates are only shown: in the table of a sweep, and by TensorBoard.
    """
    shown = ("cli/sweep.py", "sweeping/folder.py", "tracking/tensorboard_worker.py")
    package = Path(shipped_tiny()).parents[2]
    asks = re.compile(r"\btime\.time(_ns)?\(|datetime\.(now|utcnow|today)|st_mtime|getmtime|gmtime")
    found = [
        f"{path.relative_to(package)}:{number}"
        for path in sorted(package.rglob("*.py"))
        if str(path.relative_to(package)) not in shown
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if asks.search(line)
    ]
    assert found == []


@pytest.mark.slow
def test_a_base_model_that_is_gone_or_another_one_is_named(tmp_path):
    """The checkpoint has adapters only: what lies under them must be what it was."""
    model = tmp_path / "model"
    shutil.copytree(shipped_tiny(), model)
    words = [*TRAIN, "policy=hf", "policy.path=model", "policy.lora.rank=4"]
    run(tmp_path, *words, "run.max_steps=2")
    model.rename(tmp_path / "moved")
    said = run(tmp_path, *words, "run.max_steps=4", expect=2)
    assert "policy.path: got 'model', nothing is there" in said
    assert "resume.allow=[policy.path]" in said
    shutil.copytree(tmp_path / "moved", model)
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        good = (model / name).read_bytes()
        other = good + b"\n" if name.endswith("json") else good[:-1] + bytes([good[-1] ^ 1])
        (model / name).write_bytes(other)
        said = run(tmp_path, *words, "run.max_steps=4", expect=2)
        assert "policy.path: content changed since runs/r was started" in said, name
        (model / name).write_bytes(good)
    shutil.rmtree(model)
    said = run(tmp_path, "resume", "r", "policy.path=moved", "resume.allow=[policy.path]",
               "run.max_steps=4")  # fmt: skip
    assert "continuing after step 2" in said
    assert whole_steps(tmp_path / DIRECTORY) == [2, 4]
