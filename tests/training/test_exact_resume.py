"""A run that was killed continues as if it had never died: every number, every byte."""

from __future__ import annotations

import os
import signal

import pytest
from running import SMALL, final_files, finish, last_step, numbers, run, start, wait_until

STEPS = 20


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("grpo", "ppo", "gear_ppo", "sft")]


@pytest.mark.parametrize("method", ["gear", *SLOW])
def test_killed_run_equals_the_straight_one(tmp_path, method):
    words = ["train", f"method={method}", *SMALL, f"run.max_steps={STEPS}", "checkpoint.every=5"]
    if method == "sft":
        words.remove("method.group_size=4")
    run(tmp_path, *words, "run.name=straight")
    killed = start(tmp_path, *words, "run.name=killed")
    wait_until(killed, lambda: last_step(tmp_path / "runs/killed") >= 11)
    killed.send_signal(signal.SIGKILL)
    assert finish(killed)[0] == -signal.SIGKILL
    assert last_step(tmp_path / "runs/killed") < STEPS
    said = run(tmp_path, *words, "run.name=killed")
    assert "continuing after step" in said
    straight, continued = tmp_path / "runs/straight", tmp_path / "runs/killed"
    assert numbers(continued) == numbers(straight)
    assert [line["step"] for line in numbers(straight)] == list(range(STEPS + 1))
    assert final_files(continued) == final_files(straight)
    moved = [line["policy/grad_norm"] for line in numbers(straight)[1:]]
    assert max(moved) > 0, "nothing was learned, so nothing was compared"


def test_one_ctrl_c_finishes_the_step_and_says_how_to_continue(tmp_path):
    words = ["train", "method=gear", *SMALL, "run.max_steps=500", "run.name=r"]
    process = start(tmp_path, *words)
    wait_until(process, lambda: last_step(tmp_path / "runs/r") >= 2)
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process, 60)
    assert code == 75
    assert "the same command continues" in out + err
    step = last_step(tmp_path / "runs/r")
    assert os.readlink(tmp_path / "runs/r/checkpoints/latest") == f"step_{step:06d}"
    assert "Traceback" not in out + err


def test_second_ctrl_c_stops_at_once(tmp_path):
    # One huge step, so that the first Ctrl-C alone could not end the process in time.
    words = ["train", *SMALL[:2], "tracker=none", "eval.every=0", "run.name=r",
             "method.group_size=200", "batch.tasks_per_step=60"]  # fmt: skip
    process = start(tmp_path, *words)
    out = process.stdout
    assert out is not None
    for line in out:
        if line.startswith("results:"):
            break
    process.send_signal(signal.SIGINT)
    for line in out:
        if "stopping after this step" in line:
            break
    process.send_signal(signal.SIGINT)
    assert finish(process, 20)[0] in (-signal.SIGINT, 1)


def test_same_seed_same_numbers_another_seed_others(tmp_path):
    words = ["train", *SMALL, "run.max_steps=3", "eval.every=3"]
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        run(tmp_path, *words, f"run.name={name}", f"seed={seed}")
    a, b, c = (numbers(tmp_path / "runs" / name) for name in "abc")
    assert a == b
    assert a != c


def test_damaged_checkpoint_is_named_and_the_one_before_is_used(tmp_path):
    words = ["train", *SMALL, "run.max_steps=4", "checkpoint.every=2", "run.name=r"]
    run(tmp_path, *words)
    before = numbers(tmp_path / "runs/r"), final_files(tmp_path / "runs/r")
    weights = tmp_path / "runs/r/checkpoints/step_000004/policy/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    said = run(tmp_path, *words)
    assert "checkpoint of step 4 is damaged" in said
    assert "model.safetensors" in said
    assert "continuing after step 2" in said
    assert (numbers(tmp_path / "runs/r"), final_files(tmp_path / "runs/r")) == before


def test_finished_run_given_again_says_so(tmp_path):
    words = ["train", *SMALL, "run.max_steps=2", "eval.every=2", "run.name=r"]
    run(tmp_path, *words)
    before = numbers(tmp_path / "runs/r")
    said = run(tmp_path, *words)
    assert "already finished" in said
    assert numbers(tmp_path / "runs/r") == before
