"""kill -9 at many random instants, many of them inside a save: the end is always the same."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from running import SMALL, finish, numbers, run, start

from selfdistill_cli.training.state_compare import compare_runs

METHOD = ["method=gear", *SMALL, "checkpoint.every=1"]


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    ("background", "steps", "kills", "least_inside_saves"),
    [("false", 120, 40, 15), ("true", 40, 12, 4)],
)
def test_many_kills_leave_the_run_that_was_never_killed(
    tmp_path, background, steps, kills, least_inside_saves
):
    random_instant = random.Random(0)
    words = [*METHOD, f"run.max_steps={steps}"]
    run(tmp_path, "train", *words, "run.name=straight", timeout=900)
    words.append(f"checkpoint.background={background}")
    inside = 0
    for number in range(kills):
        process = start(tmp_path, "train", *words, "run.name=killed")
        directory = tmp_path / "runs/killed"
        if number % 2:
            inside += _kill_inside_a_save(process, directory / "checkpoints", random_instant)
        else:
            _wait_for_a_step(process, directory / "metrics.jsonl")
            time.sleep(random_instant.uniform(0, 0.6))
            process.send_signal(signal.SIGKILL)
        assert finish(process)[0] == -signal.SIGKILL, "it ended before all kills were made"
    assert inside >= least_inside_saves
    run(tmp_path, "train", *words, "run.name=killed", timeout=900)
    found = compare_runs(tmp_path / "runs/straight", tmp_path / "runs/killed", steps)
    assert not any(found.values()), found
    assert [x["step"] for x in numbers(tmp_path / "runs/killed")] == list(range(steps + 1))


def _kill_inside_a_save(process, checkpoints: Path, random_instant: random.Random) -> bool:
    """Kill once a checkpoint is being written; whether it was still unfinished afterwards."""
    end = time.monotonic() + 200
    while not (partial := list(checkpoints.glob(".step_*.partial"))):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "no checkpoint was begun"
        time.sleep(0.0005)
    time.sleep(random_instant.uniform(0, 0.02))
    os.kill(process.pid, signal.SIGKILL)
    process.wait(60)
    return partial[0].exists()


def _wait_for_a_step(process, metrics: Path) -> None:
    size = metrics.stat().st_size if metrics.exists() else 0
    end = time.monotonic() + 200
    while not metrics.exists() or metrics.stat().st_size == size:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "no step was logged"
        time.sleep(0.005)
