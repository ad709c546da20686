"""A rank that dies, stops or is late: the others end soon, and its own trouble is told first."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import running
from starting import CHECKOUT, HERE

from selfdistill_cli.training.checkpoints import problem_with
from selfdistill_cli.training.heartbeat import Beat, late

WORDS = (
    "train", "method=grpo", *running.SMALL, "run.name=r", "eval.every=0", "checkpoint.every=1",
    "launcher=local", "launcher.num_processes=2",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{CHECKOUT}{os.pathsep}{HERE}")


def worker(rank: int, folder: Path) -> int:
    """The process of a rank: the one whose environment says so and that works in `folder`."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            said = (entry / "environ").read_bytes().split(b"\0")
            if f"RANK={rank}".encode() in said and (entry / "cwd").resolve() == folder.resolve():
                words = (entry / "cmdline").read_bytes()
                if b"selfdistill_cli.cli.worker" in words:
                    return int(entry.name)
        except OSError:
            continue
    raise AssertionError(f"no process of rank {rank}")


def test_killed_rank_ends_the_job_and_the_same_command_continues(tmp_path: Path) -> None:
    process = running.start(tmp_path, *WORDS, "run.max_steps=500")
    directory = tmp_path / "runs/r"
    running.wait_until(process, lambda: running.last_step(directory) >= 2)
    os.kill(worker(1, tmp_path), signal.SIGKILL)
    killed = time.monotonic()
    code, out, err = running.finish(process, 60)
    assert time.monotonic() - killed < 60
    assert code == 1, out + err
    assert "rank 1 was killed by signal 9" in err
    assert "Traceback" not in out + err
    assert "lost the other ranks" not in err
    newest = (directory / "checkpoints" / "latest").resolve()
    assert problem_with(newest) is None

    process = running.start(tmp_path, *WORDS, "run.max_steps=500")
    begun = running.last_step(directory)
    running.wait_until(process, lambda: running.last_step(directory) > begun)
    process.send_signal(signal.SIGINT)
    code, out, err = running.finish(process, 60)
    assert code == 75, out + err
    assert "continuing after step" in out
    assert out.count("the same command continues") + err.count("the same command continues") == 1
    step = running.last_step(directory)
    assert os.readlink(directory / "checkpoints/latest") == f"step_{step:06d}"
    assert json.loads((directory / "run.json").read_text())["status"] == "preempted"


def test_error_of_one_rank_alone_is_told(tmp_path: Path) -> None:
    words = (*WORDS, "env=late", "env.on_rank_1=raise", "--config-dir", str(HERE / "conf"))
    process = running.start(tmp_path, *words, "run.max_steps=2")
    code, out, err = running.finish(process, 120)
    assert code == 1, out + err
    assert "rank 1 ended with exit code 1" in err
    assert "ValueError: this disk is broken" in err
    assert "lost the other ranks" not in err
    assert "this disk is broken" in (tmp_path / "runs/r/ranks/rank_1.log").read_text()


def test_late_rank_is_named_with_phase_and_task(tmp_path: Path) -> None:
    words = (*WORDS, "env=late", "launcher.timeout_s=20", "--config-dir", str(HERE / "conf"))
    process = running.start(tmp_path, *words, "run.max_steps=2")
    code, out, err = running.finish(process, 200)
    assert code == 1, out + err
    assert "rank 1 is late: it is in step 1, rollout (task " in err
    assert "waiting for it: rank 0" in err
    assert "launcher.timeout_s=20" in err


def test_who_is_late() -> None:
    behind = Beat(4, False, 2, "rollout", "task a")
    ahead = Beat(5, True, 2, "rollout", "")
    assert late({0: (ahead, 0.0), 1: (behind, 0.0)}, 5.0, 10.0) is None
    said = late({0: (ahead, 0.0), 1: (behind, 0.0), 2: (ahead, 3.0)}, 11.0, 10.0)
    assert said is not None
    assert said.startswith("rank 1 is late: it is in step 2, rollout (task a)")
    assert "waiting for it: rank 0." in said
    # Nobody waits: every rank may play for as long as it likes.
    assert late({0: (behind, 0.0), 1: (behind, 0.0)}, 1e6, 10.0) is None
    # Rank 0 itself is the late one.
    said = late({0: (behind, 0.0), 1: (ahead, 0.0)}, 11.0, 10.0)
    assert said is not None
    assert said.startswith("rank 0 is late")


SLOW = pytest.param("deepspeed", marks=pytest.mark.slow)


@pytest.mark.parametrize("launcher", ["torchrun", SLOW])
def test_other_launchers(tmp_path: Path, launcher: str) -> None:
    words = [w for w in WORDS if not w.startswith("launcher")]
    words += ["run.max_steps=1", f"run.root={tmp_path / 'runs'}"]
    if launcher == "torchrun":
        start = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
        command = [*start, "-m", "selfdistill_cli", *words, "--local_rank=0"]
    else:
        start = ["-m", "deepspeed.launcher.runner", "--num_gpus", "2", "--master_port", "29411"]
        command = [*start, "--module", "selfdistill_cli", *words]
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = running.numbers(tmp_path / "runs/r")
    assert [line["step"] for line in lines] == [1]
    assert (tmp_path / "runs/r/ranks/rank_1.log").is_file()
