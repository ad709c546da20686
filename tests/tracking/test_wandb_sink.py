"""W&B: what is logged can be read back; it can neither stall nor kill a run."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest
from wandb_files import contents

from selfdistill_cli.core.errors import UserError
from selfdistill_cli.tracking.settings import NoTrackerSettings, WandbSettings

ROOT = Path(__file__).parents[2]


def settings(**changes):
    values = {
        "mode": "offline",
        "project": "p",
        "entity": None,
        "group": "g",
        "job_type": "train",
        "name": None,
        "notes": "why",
        "tags": ["t"],
        "samples": 0,
        "sample_characters": 60,
        "init_timeout_s": 30.0,
        "log_timeout_s": 0.05,
        "finish_timeout_s": 40.0,
    }
    return WandbSettings(**{**values, **changes})


@pytest.fixture(autouse=True)
def _no_account(monkeypatch, tmp_path):
    """No login of the person who runs the tests may be used."""
    for name in [n for n in os.environ if n.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))


def files_once(run_dir):
    """The .wandb files of all attempts, oldest first."""
    found = sorted(Path(run_dir).glob("wandb/*run-*/run-*.wandb"))
    return [path for path in found if "latest-run" not in path.parts and path.stat().st_size]


def history_so_far(run_dir):
    """Rows that are on disk: what survives if everything is killed now."""
    return [row for path in files_once(run_dir) for row in contents(path)["history"]]


def alive(pid):
    """Running, and not a corpse that waits for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def descendants(pid):
    """Pids of a process's children, theirs, and so on."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, new = set(), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return found


def gone_within(pids, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(map(alive, pids)):
        time.sleep(0.1)
    return not any(map(alive, pids))


@contextmanager
def silent_server():
    """Takes connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(64)
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_step_that_is_done_again_is_logged_once_unless_its_numbers_differ(tmp_path):
    """Three attempts; the second and the third start again from an earlier step."""
    config = {"method": {"name": "gear", "lr": 0.5}, "hub_token": "not-for-others"}
    attempts = ((range(4), 10), (range(2, 6), 10), (range(5, 7), 20))
    for steps, divisor in attempts:
        sink = settings().build(tmp_path, "a-name", "cafe0123", config)
        for step in steps:
            lines = {"reward/mean": step / divisor, "loss/bad": float("nan"), "time/s": time.time()}
            sink.log(step, lines)
        sink.finish("finished")
        assert sink.health() == {
            "state": "closed",
            "accepted": len(steps),
            "dropped": 0,
            "errors": 0,
        }, (tmp_path / "wandb/worker.log").read_text()
    found = [contents(path) for path in files_once(tmp_path)]
    logged = [[row["step"] for row in data["history"]] for data in found]
    assert logged == [[0, 1, 2, 3], [4, 5], [5, 6]]
    for data, (_, divisor) in zip(found, attempts, strict=True):
        for row in data["history"]:
            assert row["reward/mean"] == row["step"] / divisor
        assert data["config"]["method"] == {"name": "gear", "lr": 0.5}
        assert data["config"]["hub_token"] == "<removed>"
        assert data["summary"]["reward/mean"] == data["history"][-1]["reward/mean"]
        assert data["exit_code"] == 0
        assert (data["run"].run_id, data["run"].display_name) == ("cafe0123", "a-name")
        assert (data["run"].project, list(data["run"].tags)) == ("p", ["t"])
        assert (data["run"].job_type, data["run"].notes) == ("train", "why")
    internal = [row["_step"] for data in found for row in data["history"]]
    assert internal == sorted(set(internal)), "W&B drops lines whose internal step does not grow"


def test_a_name_of_ones_own_and_another_runs_id_inside_a_trial(tmp_path, monkeypatch):
    """W&B would give a run the trial's id, whatever it is told, while the variables are set."""
    monkeypatch.setenv("WANDB_SWEEP_ID", "sweep123")
    monkeypatch.setenv("WANDB_RUN_ID", "trial123")
    sink = settings(name="mine", group=None).build(tmp_path, "n", "cafe0123", {})
    sink.log(1, {"a": 1.0})
    sink.finish("finished")
    record = contents(files_once(tmp_path)[0])["run"]
    assert (record.run_id, record.display_name) == ("cafe0123", "mine")
    assert (record.run_group, record.sweep_id) == ("", "")


def test_the_trainers_console_gets_nothing_and_its_environment_stays(tmp_path, capfd):
    before = dict(os.environ)
    sink = settings().build(tmp_path, "n", "cafe0123", {})
    sink.log(1, {"a": 1.0})
    sink.finish("failed")
    assert capfd.readouterr() == ("", "")
    assert dict(os.environ) == before
    assert "wandb" not in sys.modules or "WANDB_SERVICE" not in os.environ
    assert contents(files_once(tmp_path)[0])["exit_code"] == 1


def test_online_without_a_login_is_refused_before_training(tmp_path):
    start = time.monotonic()
    with pytest.raises(UserError, match=r"tracker\.mode=online.*wandb login"):
        settings(mode="online").build(tmp_path, "n", "cafe0123", {})
    assert time.monotonic() - start < 25


PROGRAM = """
import sys, time, json
from selfdistill_cli.tracking.settings import WandbSettings
start = time.monotonic()
lap = lambda: time.monotonic() - start
sink = WandbSettings(**json.loads(sys.argv[2])).build(sys.argv[1], "n", "cafe0123", {})
times = {"built": lap()}
worst = 0.0
for step in range(int(sys.argv[4])):
    before = lap()
    sink.log(step, {f"loss/{i}": step * 0.1 for i in range(30)})
    worst = max(worst, lap() - before)
times |= {"worst_log": worst, "logged": lap()}
print("READY", flush=True)
if sys.argv[3] == "wait":
    time.sleep(120)
sink.finish("finished")
times |= {"finished": lap(), **sink.health()}
print(json.dumps(times), flush=True)
"""


def trainer(tmp_path, num_steps, chosen, then="finish", **environment):
    """A process that logs like a run; its output is read through pipes, as a scheduler does."""
    values = asdict(chosen)
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path), json.dumps(values), then, str(num_steps)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
    )


def test_a_server_that_never_answers_costs_its_time_limits_and_no_more(tmp_path):
    chosen = settings(mode="online", init_timeout_s=2.0, finish_timeout_s=3.0)
    with silent_server() as address:
        key = {"WANDB_BASE_URL": address, "WANDB_API_KEY": "a" * 40}
        process = trainer(tmp_path, 3000, chosen, **key)
        assert process.stdout is not None
        assert process.stdout.readline() == "READY\n"
        helpers = descendants(process.pid)
        start = time.monotonic()
        out, err = process.communicate(timeout=60)
        exit_s = time.monotonic() - start
    times = json.loads(out)
    assert process.returncode == 0, err
    assert times["built"] < 2.0 + 3.0
    assert times["dropped"] > 0, "the queue must have been full for this to show anything"
    assert times["worst_log"] < 0.05 + 0.5
    assert times["finished"] - times["logged"] < 3.0 + 5.0
    assert exit_s < 3.0 + 8.0, "leaving Python must not wait for wandb either"
    assert err.count("W&B:") == 2, "the first trouble, and the sum at the end"
    assert f"in all {times['dropped']} lines dropped and {times['errors']} errors" in err
    assert "Traceback" not in err
    assert gone_within(helpers, 20)


def test_without_an_answer_the_attempt_is_recorded_offline_and_says_so(tmp_path):
    chosen = settings(mode="online", init_timeout_s=1.0)
    with silent_server() as address:
        key = {"WANDB_BASE_URL": address, "WANDB_API_KEY": "a" * 40}
        out, err = trainer(tmp_path, 5, chosen, **key).communicate(timeout=90)
    assert json.loads(out.splitlines()[-1])["dropped"] == 0
    assert "recorded offline" in err
    assert [row["step"] for row in history_so_far(tmp_path)] == list(range(5))
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"a" * 40 not in path.read_bytes(), path


def test_kill_9_of_the_trainer_leaves_readable_files_and_no_process(tmp_path):
    process = trainer(tmp_path, 900, settings(finish_timeout_s=10.0), then="wait")
    assert process.stdout is not None
    assert process.stdout.readline() == "READY\n"
    end = time.monotonic() + 40
    while time.monotonic() < end and len(history_so_far(tmp_path)) < 900:
        time.sleep(0.2)
    helpers = descendants(process.pid)
    assert helpers
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    assert gone_within(helpers, 30)
    assert [row["step"] for row in history_so_far(tmp_path)] == list(range(900))
    assert contents(files_once(tmp_path)[0])["exit_code"] == 1


def test_kill_9_while_wandb_starts_loses_only_what_was_still_queued(tmp_path):
    process = trainer(tmp_path, 900, settings(finish_timeout_s=20.0), then="wait")
    assert process.stdout is not None
    assert process.stdout.readline() == "READY\n"
    helpers = descendants(process.pid)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    assert gone_within(helpers, 45)
    steps = [row["step"] for row in history_so_far(tmp_path)]
    assert steps == list(range(len(steps)))
    assert len(steps) > 10


def test_a_dead_worker_is_counted_and_never_raised(tmp_path):
    said = []
    sink = settings().build(tmp_path, "n", "cafe0123", {}, announce=said.append)
    sink._process.kill()
    sink._process.wait(5)
    for step in range(5):
        sink.log(step, {"a": 1.0})
    sink.finish("finished")
    assert sink.health()["dropped"] == 5
    assert len(said) == 2
    assert "in all 5 lines dropped" in said[1]
    assert "\n" not in said[0] + said[1]


def test_no_tracker_has_no_implementation_and_disabled_does_nothing(tmp_path):
    assert NoTrackerSettings().implementation == ""
    sink = settings(mode="disabled").build(tmp_path, "n", "cafe0123", {})
    sink.log(1, {"a": 1.0})
    sink.finish("finished")
    assert list(tmp_path.glob("wandb")) == []
