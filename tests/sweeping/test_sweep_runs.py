"""Whole sweeps of runs that train, killed at a random moment: ledger, errors, logs, W&B files."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import running
import yaml
from sweeps import cells, end, environment, only_sweep, selfdistill, statuses
from wandb_files import contents

from selfdistill_cli.tracking.metrics_file import read

SMALL = (
    "env=troubled", "method=grpo", "run.max_steps=2", "run.num_threads=1", "eval.every=0",
    "batch.tasks_per_step=2", "method.group_size=2", "env.sandbox.workers=1", "checkpoint.every=1",
    "run.trajectories_every=0", "tracker=wandb", "sweep.metric=reward/mean",
    "guards.on_collapse=off",
)  # fmt: skip
TROUBLE = {
    "late": ({"env": {"trouble": "late"}}, "failed", "env.trouble: got 'late', expected tasks"),
    "kill": ({"env": {"trouble": "kill"}}, "failed", "killed by signal 9 (SIGKILL)"),
    "diverges": ({"optim": {"lr": 1e30, "weight_decay": 1e30}}, "nan", "not finite"),
}
"""What goes wrong under an experiment, the status, and what is said of it."""


def write_conf(folder: Path, num_fine: int) -> list[str]:
    """Experiments of which three go wrong; returns their names."""
    conf = folder / "conf"
    (conf / "experiment").mkdir(parents=True)
    (conf / "env").mkdir()
    (conf / "env/troubled.yaml").write_text(
        "defaults:\n  - code\n  - _self_\n_target_: troubled.TroubledSettings\ntrouble: none\n"
    )
    contents_of = {f"fine_{i}": {"seed": i} for i in range(num_fine)}
    contents_of |= {name: content for name, (content, _, _) in TROUBLE.items()}
    for name, content in contents_of.items():
        text = "# @package _global_\n" + yaml.safe_dump(content)
        (conf / f"experiment/{name}.yaml").write_text(text)
    names = list(contents_of)
    random.Random(1).shuffle(names)
    return names


def start(folder: Path, names: list[str]) -> subprocess.Popen[str]:
    words = ["train", "-m", f"experiment={','.join(names)}", *SMALL, "--config-dir", "conf"]
    return subprocess.Popen(
        [sys.executable, "-m", "selfdistill_cli", *words, "launcher.jobs=2"],
        cwd=folder, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def check(folder: Path, names: list[str], said: str) -> None:
    """Every cell ended once, as it had to, and W&B has each run with its own configuration."""
    expected = {name: TROUBLE[name][1] if name in TROUBLE else "done" for name in names}
    assert statuses(folder) == expected
    sweep = only_sweep(folder)
    for name, (_, status, error) in TROUBLE.items():
        cell = cells(folder)[name]
        assert error in (cell.error or "")
        assert f"{name}: {status}: " in said
        assert f"log: {cell.log}" in said
        assert "attempt 1" in Path(cell.log).read_text()
    ids: set[str] = set()
    for name in names:
        metrics = sweep / name / "metrics.jsonl"
        steps_done = [line["step"] for line in read(metrics)] if metrics.is_file() else []
        assert steps_done == {"late": [], "kill": [], "diverges": [1]}.get(name, [1, 2])
        files = sorted((sweep / name / "wandb").glob("offline-run-*/run-*.wandb"))
        found = [contents(path) for path in files]
        assert {run["run"].run_group for run in found} == {sweep.name}
        if name in TROUBLE:
            assert {run["config"]["env"]["trouble"] for run in found} == {
                "none" if name == "diverges" else name
            }
            assert {run["config"]["optim"]["lr"] == 1e30 for run in found} == {name == "diverges"}
        else:
            assert {run["config"]["seed"] for run in found} == {int(name.removeprefix("fine_"))}
        ids |= {run["run"].run_id for run in found}
        steps = {row["step"] for run in found for row in run["history"] if "step" in row}
        assert steps <= {1, 2}
    assert len(ids) == len(names)


def killed_and_continued(folder: Path, num_fine: int, within_s: float) -> None:
    names = write_conf(folder, num_fine)
    process = start(folder, names)
    running.wait_until(process, lambda: "running" in statuses(folder).values())
    time.sleep(random.uniform(0, within_s))
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=20)
    check(folder, names, end(start(folder, names), expect=1, timeout=550))


def test_killed_sweep_of_four(tmp_path: Path) -> None:
    killed_and_continued(tmp_path, 1, within_s=8)


@pytest.mark.slow
def test_killed_sweep_of_twelve(tmp_path: Path) -> None:
    killed_and_continued(tmp_path, 9, within_s=40)


@pytest.mark.slow
def test_retry_after_the_cause_was_mended(tmp_path: Path) -> None:
    """By name; the other one stays invalid, and the run is the one that its command names."""
    own = [word for word in SMALL if not word.startswith(("env=", "tracker="))]
    words = [*own, "tracker=none", "env.data=a.jsonl,b.jsonl", "launcher.jobs=1"]
    said = selfdistill(tmp_path, "train", "-m", *words, "sweep.name=s", expect=1)
    assert said.count("invalid: env.data: got '") == 2 * 2  # as it happens, and at the end
    assert "sweep retry runs/multirun/s invalid" in said
    problem = {"prompt": "Write inc(x).", "entry_point": "inc"}
    lines = [
        {**problem, "task_id": f"c/{i}", "calls": [{"args": [i], "expected": i + 1}]}
        for i in range(40)
    ]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert statuses(tmp_path) == {"data_a.jsonl": "invalid", "data_b.jsonl": "invalid"}
    said = selfdistill(tmp_path, "sweep", "retry", "s", "data_a.jsonl", expect=1)
    assert said.count(" started") == 1
    assert statuses(tmp_path) == {"data_a.jsonl": "done", "data_b.jsonl": "invalid"}
    command = (only_sweep(tmp_path) / "data_a.jsonl/command.txt").read_text()
    assert "env.data=a.jsonl" in command
    assert command.endswith("run.root=runs/multirun/s run.name=data_a.jsonl\n")
