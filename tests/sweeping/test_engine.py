"""A sweep whose processes are killed, deaf, loud, stopped: every cell runs to its end once."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from sweeps import cells, drive, end, names_in, only_sweep, selfdistill, statuses, wait_for

DEEDS = {"3": "fail", "5": "diverge", "8": "kill"}
FAILED = {"seed_3": "failed", "seed_5": "nan", "seed_8": "failed"}


def lives(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_killed_sweep_runs_every_cell_to_its_end_once(tmp_path: Path) -> None:
    words = ("seed=range(12)", "launcher.jobs=2")
    process = drive(tmp_path, *words, deeds=DEEDS, step_s=0.1)
    wait_for(lambda: "running" in statuses(tmp_path).values())
    time.sleep(random.uniform(0, 2.5))
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=20)
    said = end(drive(tmp_path, *words, deeds=DEEDS, step_s=0.02), expect=1)

    found = statuses(tmp_path)
    expected = {f"seed_{i}": FAILED.get(f"seed_{i}", "done") for i in range(12)}
    assert found == expected
    folder = only_sweep(tmp_path)
    assert names_in(folder / "ends.txt") == sorted(set(expected) - set(FAILED))
    for name in expected:  # a resumed cell goes on where it stopped
        steps = (folder / name / "metrics.jsonl").read_text().count("step")
        assert steps == 5
    assert "seed_3: failed: the value of seed 3 is wrong" in said
    assert "seed_5: nan: step 3: loss is not finite" in said
    assert "seed_8: failed: killed by signal 9 (SIGKILL)" in said
    for name in FAILED:
        assert f"log: {folder.absolute() / 'logs' / name}.log" in said
    assert "the value of seed 3 is wrong" in (folder / "logs/seed_3.log").read_text()
    # Nothing is left: the same command again starts nothing and says the same.
    starts = (folder / "starts.txt").read_text()
    assert "seed_3: failed" in end(drive(tmp_path, *words), expect=1)
    assert (folder / "starts.txt").read_text() == starts


def test_stop_is_a_checkpoint_and_a_second_one_is_at_once(tmp_path: Path) -> None:
    words = ("seed=0,1,2", "launcher.jobs=2")
    process = drive(tmp_path, *words, step_s=0.5)
    wait_for(lambda: len(list((tmp_path / "runs/multirun").glob("*/*/metrics.jsonl"))) == 2)
    process.send_signal(signal.SIGINT)
    said = end(process, expect=75)
    assert "stopping: running cells write a checkpoint" in said
    assert statuses(tmp_path) == {
        "seed_0": "preempted", "seed_1": "preempted", "seed_2": "pending",
    }  # fmt: skip

    deaf = drive(tmp_path, *words, deeds={"0": "deaf", "1": "deaf"})
    wait_for(lambda: (only_sweep(tmp_path) / "starts.txt").read_text().count("\n") == 4)
    deaf.send_signal(signal.SIGTERM)
    wait_for(lambda: True, 1)
    time.sleep(0.5)
    assert deaf.poll() is None
    begun = time.monotonic()
    deaf.send_signal(signal.SIGTERM)
    end(deaf, expect=75)
    assert time.monotonic() - begun < 15  # far less than sweep.grace_s, which the deaf ones need
    assert not any(lives(cell.pid) for cell in cells(tmp_path).values() if cell.pid)
    assert end(drive(tmp_path, *words)).count("started") == 3
    assert set(statuses(tmp_path).values()) == {"done"}


def test_what_a_cell_leaves_behind_is_ended(tmp_path: Path) -> None:
    deeds = {"0": "child", "1": "loud"}
    words = ("seed=0,1", "launcher.jobs=2", "sweep.log_limit_mb=0.1")
    end(drive(tmp_path, *words, deeds=deeds))
    folder = only_sweep(tmp_path)
    assert not lives(int((folder / "seed_0/child.txt").read_text()))
    log = (folder / "logs/seed_1.log").read_bytes()
    assert len(log) <= 110_000
    assert b"line 0 " in log
    assert b"bytes left out" in log
    assert b"line 99999 " in log


def test_deaf_cell_is_ended_after_the_grace(tmp_path: Path) -> None:
    process = drive(tmp_path, "seed=0,1", "sweep.grace_s=1", deeds={"0": "deaf", "1": "deaf"})
    wait_for(lambda: [c.pid for c in cells(tmp_path).values() if c.pid])
    (pid, *_) = [c.pid for c in cells(tmp_path).values() if c.pid]
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=20)
    wait_for(lambda: not lives(pid), 20)


def test_failed_cells_start_again(tmp_path: Path) -> None:
    words = ("seed=0,1,2", "sweep.on_failure=retry", "sweep.retries=1")
    said = end(drive(tmp_path, *words, deeds={"0": "fail once", "1": "fail"}), expect=1)
    found = cells(tmp_path)
    assert {n: (c.status, c.attempt) for n, c in found.items()} == {
        "seed_0": ("done", 2), "seed_1": ("failed", 2), "seed_2": ("done", 1),
    }  # fmt: skip
    assert "seed_0 pending and starts again: the value of seed 0 is wrong" in said


def test_fail_fast_stops_the_others(tmp_path: Path) -> None:
    words = ("seed=range(6)", "launcher.jobs=2", "sweep.on_failure=fail_fast")
    process = drive(tmp_path, *words, deeds={"0": "fail"}, step_s=0.15)
    said = end(process, expect=1)
    assert "sweep.on_failure=fail_fast stops the sweep" in said
    found = statuses(tmp_path)
    assert found["seed_0"] == "failed"
    assert found["seed_5"] == "pending"
    assert set(found.values()) <= {"failed", "pending", "preempted", "done"}


def test_an_objective_that_is_not_finite_is_nan(tmp_path: Path) -> None:
    end(drive(tmp_path, "seed=0,1", deeds={"1": "null"}), expect=1)
    found = cells(tmp_path)
    assert (found["seed_0"].status, found["seed_0"].objective) == ("done", 0.5)
    assert (found["seed_1"].status, found["seed_1"].objective) == ("nan", None)


def test_status_and_cancel_from_another_shell(tmp_path: Path) -> None:
    words = ("seed=0,1,2,3", "launcher.jobs=1")
    process = drive(tmp_path, *words, step_s=0.4)
    wait_for(lambda: "running" in statuses(tmp_path).values())
    folder = only_sweep(tmp_path)
    wait_for(lambda: (folder / "seed_0/metrics.jsonl").is_file())
    said = selfdistill(tmp_path, "sweep", "status", folder.name)
    assert "seed_0  running" in said
    assert f"runs in process {process.pid}" in said
    said = selfdistill(tmp_path, "sweep", "cancel", str(folder), "seed_0", "seed_2")
    assert "cancel: seed_0, seed_2" in said
    said = end(process)
    assert "seed_2 cancelled" in said
    assert statuses(tmp_path) == {
        "seed_0": "cancelled", "seed_1": "done", "seed_2": "cancelled", "seed_3": "done",
    }  # fmt: skip
    assert names_in(folder / "starts.txt") == ["seed_0", "seed_1", "seed_3"]
    assert "nothing is left to cancel" in selfdistill(
        tmp_path, "sweep", "cancel", folder.name, expect=2
    )


def test_the_same_sweep_twice_is_refused(tmp_path: Path) -> None:
    process = drive(tmp_path, "seed=0,1", step_s=0.5)
    wait_for(lambda: "running" in statuses(tmp_path).values())
    said = end(drive(tmp_path, "seed=0,1"), expect=2)
    assert f"is in use by process {process.pid}" in said
    assert "Traceback" not in said
    end(process)


def test_two_sweeps_at_the_same_moment_share_nothing(tmp_path: Path) -> None:
    both = [drive(tmp_path, *w) for w in (("seed=0,1",), ("seed=0,1", "optim.lr=1e-5"))]
    for process in both:
        end(process)
    folders = list((tmp_path / "runs/multirun").iterdir())
    assert len(folders) == 2
    assert [names_in(folder / "ends.txt") for folder in folders] == [["seed_0", "seed_1"]] * 2


def test_values_that_are_added_extend_the_sweep(tmp_path: Path) -> None:
    end(drive(tmp_path, "seed=0,1"))
    end(drive(tmp_path, "seed=0,1,2", "run.max_steps=5"))
    folder = only_sweep(tmp_path)
    assert names_in(folder / "starts.txt") == ["seed_0", "seed_1", "seed_2"]
    end(drive(tmp_path, "seed=7", "seed=7,8", f"sweep.name={folder.name}"))
    assert list(cells(tmp_path)) == ["seed_0", "seed_1", "seed_2", "seed_7", "seed_8"]
    said = end(drive(tmp_path, "seed=0,1", "optim.lr=1", f"sweep.name={folder.name}"), expect=2)
    assert "holds another sweep:\n    optim.lr: not given -> 1\n" in said
    # With more steps all of them go on.
    end(drive(tmp_path, "seed=0,1,2,7,8", "run.max_steps=6"))
    assert len(names_in(folder / "starts.txt")) == 10
    assert (folder / "seed_0/metrics.jsonl").read_text().count("step") == 6


def test_retry_takes_statuses_and_names(tmp_path: Path) -> None:
    end(drive(tmp_path, "seed=0,1,2", deeds={"0": "fail", "1": "fail", "2": "diverge"}), expect=1)
    folder = only_sweep(tmp_path)
    words = ["sweep", "retry", folder.name]
    said = selfdistill(tmp_path, *words, "fialed", expect=2)
    assert "did you mean 'failed'" in said
    assert "no cell is cancelled" in selfdistill(tmp_path, *words, "cancelled", expect=2)


@pytest.mark.parametrize("keeper_too", [True, False])
def test_keeper_that_is_killed_takes_its_cell_with_it(tmp_path: Path, keeper_too: bool) -> None:
    process = drive(tmp_path, "seed=0,1", "launcher.jobs=1", step_s=0.3)
    wait_for(lambda: [c.pid for c in cells(tmp_path).values() if c.pid])
    (pid,) = [c.pid for c in cells(tmp_path).values() if c.pid]
    stat = Path(f"/proc/{pid}/stat").read_text()
    keeper = int(stat.rpartition(")")[2].split()[1])
    os.kill(keeper if keeper_too else pid, signal.SIGKILL)
    end(process, expect=1)
    assert statuses(tmp_path) == {"seed_0": "failed", "seed_1": "done"}
    assert not lives(pid)


def test_a_moved_sweep_goes_on_where_it_is(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    process = drive(before, "seed=0,1", "launcher.jobs=1", step_s=0.3)
    wait_for(lambda: list(before.glob("runs/multirun/*/seed_0/metrics.jsonl")))
    process.send_signal(signal.SIGINT)
    end(process, expect=75)
    before.rename(after)
    end(drive(after, "seed=0,1"))
    assert [cell.objective for cell in cells(after).values()] == [0.5, 0.5]
    assert "attempt 2" in (only_sweep(after) / "logs/seed_0.log").read_text()
    assert not before.exists()


def test_another_metric_measures_what_ended_anew(tmp_path: Path) -> None:
    end(drive(tmp_path, "seed=0,1", "sweep.name=s", "sweep.metric=step"))
    assert [cell.objective for cell in cells(tmp_path).values()] == [5, 5]
    end(drive(tmp_path, "seed=0,1,2", "sweep.name=s"))
    assert [cell.objective for cell in cells(tmp_path).values()] == [0.5, 0.5, 0.5]


def test_a_refused_command_leaves_the_plan_as_it_was(tmp_path: Path) -> None:
    words = ("sweep=random", "sweep.trials=1", "sweep.name=s", "optim.lr=interval(1e-5,1e-3)")
    end(drive(tmp_path, *words))
    plan = (only_sweep(tmp_path) / "sweep.json").read_bytes()
    said = end(drive(tmp_path, *words, "sweep.metric=step"), expect=2)
    assert "sweep.metric: got step, but the search" in said
    assert (only_sweep(tmp_path) / "sweep.json").read_bytes() == plan
    said = end(drive(tmp_path, "sweep.name=t", "optim.lr=interval(1e-5,1e-3)"), expect=2)
    assert "an interval has no values" in said
    assert only_sweep(tmp_path).name == "s"


def test_a_metric_that_nobody_logs_is_told(tmp_path: Path) -> None:
    said = end(drive(tmp_path, "seed=0,1", "sweep.metric=eval/sucess", "run.max_steps=1"))
    assert "no cell has logged 'eval/sucess'; did you mean 'eval/success'?" in said
    assert statuses(tmp_path) == {"seed_0": "done", "seed_1": "done"}
