"""Room for cells, objectives, logs, and what an exit means."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from pathlib import Path

import pytest

from selfdistill_cli.analysis.ledger import Ledger
from selfdistill_cli.config.compose import compose
from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.sweeping import cluster
from selfdistill_cli.sweeping.bounded_log import BoundedLog
from selfdistill_cli.sweeping.folder import Command, open_folder
from selfdistill_cli.sweeping.outcome import outcome_of
from selfdistill_cli.sweeping.processes import Ended
from selfdistill_cli.sweeping.readings import Follower, objective_of
from selfdistill_cli.sweeping.slots import slots_for, visible_gpus
from selfdistill_cli.sweeping.start import planned


@pytest.mark.parametrize(
    ("words", "cores", "gpus", "count", "devices", "said"),
    [
        (["run.num_threads=2"], 8, [], 4, None, ""),
        (["launcher.jobs=3"], 8, [], 3, None, ""),
        (["launcher.jobs=9", "run.num_threads=2"], 8, [], 4, None, "4 instead of 9 at once (8"),
        (["launcher.jobs=2"], 1, [], 1, None, "1 instead of 2"),
        ([], 64, ["0", "1", "2"], 3, ["0", "1", "2"], ""),
        (["launcher=local", "launcher.num_processes=2"], 64, ["4", "5", "6"], 1, ["4,5"], ""),
        (["launcher=local", "launcher.num_processes=2", "launcher.jobs=3"], 64,
         ["0", "1", "2", "3"], 2, ["0,1", "2,3"], "2 instead of 3 at once (4 GPUs, 2 for each"),
        (["zero.device=cpu"], 4, ["0"], 4, None, ""),
    ],
)  # fmt: skip
def test_as_many_at_once_as_cores_and_gpus_carry(
    words: list[str], cores: int, gpus: list[str], count: int, devices: list[str] | None, said: str
) -> None:
    slots = slots_for(compose(["run.num_threads=1", *words]).settings, cores, gpus)
    assert slots.count == count
    wanted = [{}] * count if devices is None else [{"CUDA_VISIBLE_DEVICES": d} for d in devices]
    assert list(slots.environments) == wanted
    assert said in slots.note
    assert bool(said) == bool(slots.note)


def test_gpus_that_were_dealt_out_already_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, 5")
    assert visible_gpus() == ["2", "5"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_gpus() == []


@pytest.mark.parametrize(
    ("values", "how", "direction", "expected"),
    [
        ([(0, 0.1), (10, 0.5), (20, 0.3)], "final", "maximize", 0.3),
        ([(0, 0.1), (10, 0.5), (20, 0.3)], "best", "maximize", 0.5),
        ([(0, 0.1), (10, 0.5), (20, 0.3)], "best", "minimize", 0.1),
        ([(0, 0.0), (10, 1.0), (30, 1.0)], "auc", "maximize", 25 / 30),
        ([(5, 0.7)], "auc", "maximize", 0.7),
        ([(0, 0.1), (10, None)], "best", "maximize", 0.1),
        ([(0, 0.1), (10, None)], "final", "maximize", math.nan),
        ([(0, None), (10, 0.1)], "auc", "maximize", math.nan),
        ([], "final", "maximize", None),
    ],
)
def test_objectives(values: list, how: str, direction: str, expected: float | None) -> None:
    assert objective_of(values, how, direction) == pytest.approx(expected, nan_ok=True)


def test_metrics_are_followed_over_torn_lines_and_a_cut(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    follower = Follower(tmp_path, "loss", 9)
    assert follower.news() == []
    path.write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    assert follower.news() == [(1, 2.0)]
    path.write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "loss": null}\n{"step": 3}\n')
    assert follower.news() == [(2, None)]
    assert follower.step == 3
    path.write_text('{"step": 1, "loss": 2.0}\n')  # a resume cut the rest off
    assert follower.news() == [(1, 2.0)]
    assert follower.values == [(1, 2.0)]


def test_a_log_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "a/x.log", 10_000)
    for number in range(20_000):
        log.write(f"line {number}\n".encode())
    log.write(b"y" * 100_000 + b"the end")
    log.close()
    text = (tmp_path / "a/x.log").read_text()
    assert len(text) <= 10_000
    assert text.startswith("line 0\nline 1\n")
    assert text.endswith("the end")
    assert text.count("bytes left out ...]") == 1


OVER = Ended(code=0, asked=False, seconds=1.0, said="noise\nerror: seed: wrong\n")


@pytest.mark.parametrize(
    ("code", "asked", "reason", "status", "error"),
    [
        (0, False, None, "done", None),
        (0, True, "pruned", "done", None),
        (75, True, "pruned", "pruned", None),
        (75, True, "cancelled", "cancelled", None),
        (75, False, None, "preempted", None),
        (-15, True, "preempted", "preempted", None),
        (-9, True, None, "preempted", None),
        (-9, False, None, "failed", "killed by signal 9 (SIGKILL); noise\nerror: seed: wrong"),
        (2, False, None, "failed", "noise\nerror: seed: wrong"),
        (1, True, "preempted", "failed", "noise\nerror: seed: wrong"),
    ],
)
def test_what_an_exit_means(
    tmp_path: Path, code: int, asked: bool, reason: str | None, status: str, error: str | None
) -> None:
    ended = dataclasses.replace(OVER, code=code, asked=asked)
    assert outcome_of(ended, reason, tmp_path, 0.5) == (status, error)  # pyright: ignore


def test_the_run_s_own_error_of_the_last_attempt_is_told(tmp_path: Path) -> None:
    told = {"kind": "Diverged", "message": "step 3: loss is not finite", "attempt": 2}
    (tmp_path / "run.json").write_text(json.dumps({"error": told}))
    for number in (1, 2):
        (tmp_path / f"logs/attempt_{number}").mkdir(parents=True)
    failed = dataclasses.replace(OVER, code=1)
    assert outcome_of(failed, None, tmp_path, 0.5) == ("nan", "step 3: loss is not finite")
    (tmp_path / "logs/attempt_3").mkdir()  # which ended before it came so far
    assert outcome_of(failed, None, tmp_path, 0.5)[0] == "failed"
    assert outcome_of(OVER, None, tmp_path, math.nan)[0] == "nan"


def test_jobs_of_slurm_are_left_alone_where_nobody_knows_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = Command(words=("seed=0,1",), config_dir=None, config_name="train")
    space, _, made = planned(command)
    folder = open_folder(command, space, made.settings)
    folder.begin()
    folder.enter(made.settings.sweep.build(space, {}, folder.path).planned())
    cluster.learn(folder)
    cluster.take_back(folder)
    folder.change("seed_0", status="running", job="7_0")
    monkeypatch.setenv("PATH", str(tmp_path))  # no squeue
    cluster.refresh(folder.ledger)
    assert folder.ledger.cells()["seed_0"].status == "running"
    with pytest.raises(ConfigError, match=r"seed_0 was submitted as job 7_0 .* no squeue here"):
        cluster.take_back(folder)
    run = Path(folder.cells["seed_0"].run)
    run.mkdir()
    (run / "run.json").write_text('{"status": "finished"}')
    cluster.learn(folder)
    cluster.take_back(folder)
    assert folder.ledger.cells()["seed_0"].status == "done"
    # A job that was submitted with fewer steps than are asked for now has something left.
    job = {"container": {"run": {"max_steps": folder.plan["max_steps"] - 1}}}
    (folder.path / "jobs/seed_0.json").write_text(json.dumps(job))
    folder.change("seed_0", status="running", job="7_0")
    cluster.learn(folder)
    cell = folder.ledger.cells()["seed_0"]
    assert (cell.status, cell.job) == ("preempted", None)
    folder.close()


def test_five_hundred_cells_are_planned_in_under_two_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one core, from the words to the written plan."""
    monkeypatch.chdir(tmp_path)
    words = ("seed=range(125)", "method=gear,grpo", "optim.lr=1e-3,1e-4", "run.max_steps=3")
    begun = time.process_time()
    command = Command(words=words, config_dir=None, config_name="train")
    space, _, made = planned(command)
    folder = open_folder(command, space, made.settings)
    names = folder.enter(made.settings.sweep.build(space, {}, folder.path).planned())
    assert time.process_time() - begun < 2.0
    folder.close()
    assert len(set(names)) == len(Ledger(folder.path).cells()) == 500
