"""W&B online, against a server on the loopback interface: killed, continued, repaired."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from running import finish, last_step, numbers, run, start, wait_until
from wandb_server import KEY, ServedRun, WandbServer, serving

WORDS = [
    "train", "method=grpo", "run.num_threads=1", "batch.tasks_per_step=2", "method.group_size=2",
    "eval.every=0", "env.sandbox.workers=1", "run.name=r", "tracker.mode=online",
    "tracker.group=g", "tracker.tags=[one,two]", "tracker.finish_timeout_s=20",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _no_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [n for n in os.environ if n.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch):
    with serving() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


def only_run(server: WandbServer) -> tuple[str, ServedRun]:
    ((run_id, served),) = server.runs.items()
    assert server.unknown == []
    return run_id, served


def assert_history_is_the_truth(served: ServedRun, directory: Path, steps: int) -> None:
    """Every step once, in order, with the numbers of metrics.jsonl."""
    assert [row["step"] for row in served.lines] == list(range(1, steps + 1))
    assert [line["step"] for line in numbers(directory)] == list(range(1, steps + 1))
    for row, line in zip(served.lines, numbers(directory), strict=True):
        known = {key: value for key, value in line.items() if value is not None}
        assert {key: row[key] for key in known} == pytest.approx(known, rel=1e-12)


def test_a_killed_run_continues_as_the_same_run_with_every_step_once(tmp_path, server):
    directory = tmp_path / "runs/r"
    words = [*WORDS, "run.max_steps=9", "checkpoint.every=3"]
    server.mode = "hang"
    process = start(tmp_path, *words)
    wait_until(process, lambda: (directory / "run.json").is_file())
    run_id = json.loads((directory / "run.json").read_text())["wandb_id"]
    assert last_step(directory) == -1, "the id is kept before the first step"
    server.mode = "work"
    wait_until(process, lambda: last_step(directory) >= 5)
    process.send_signal(signal.SIGKILL)
    assert finish(process)[0] == -signal.SIGKILL
    said = run(tmp_path, *words)
    assert "continuing after step" in said
    assert f"W&B: {server.environment['WANDB_BASE_URL']}" in said
    found_id, served = only_run(server)
    assert found_id == run_id == json.loads((directory / "run.json").read_text())["wandb_id"]
    assert_history_is_the_truth(served, directory, 9)
    assert served.config["seed"] == 0
    assert served.config["method"]["name"] == "grpo"
    assert (served.fields["groupName"], served.fields["tags"]) == ("g", ["one", "two"])
    assert (served.fields["displayName"], served.project) == ("r", "selfdistill")
    assert served.exit_code == 0
    assert served.summary["step"] == 9


def refused(server: WandbServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "b" * 40)


def unreachable(server: WandbServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")


def failing(server: WandbServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.mode = "error"


def hanging(server: WandbServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.mode = "hang"


@pytest.mark.slow
@pytest.mark.parametrize("trouble", [refused, unreachable, failing, hanging])
def test_trouble_from_the_start_is_told_and_sync_repairs_it(tmp_path, server, monkeypatch, trouble):
    trouble(server, monkeypatch)
    waits = ["tracker.init_timeout_s=3", "tracker.finish_timeout_s=3"]
    said = run(tmp_path, *WORDS, *waits, "run.max_steps=2")
    assert "this attempt is recorded offline" in said
    assert "in all 0 lines dropped and 1 errors; metrics.jsonl is complete" in said
    assert "Traceback" not in said
    assert [line["step"] for line in numbers(tmp_path / "runs/r")] == [1, 2]
    assert server.runs == {}
    if trouble is refused:
        said = run(tmp_path, "sync", "r", "mode=online", expect=1)
        assert "W&B did not take everything" in said
        assert "Traceback" not in said
        monkeypatch.setenv("WANDB_API_KEY", KEY)
    server.mode = "work"
    monkeypatch.setenv("WANDB_BASE_URL", server.environment["WANDB_BASE_URL"])
    assert "2 lines of" in run(tmp_path, "sync", "r", "mode=online")
    _, served = only_run(server)
    assert_history_is_the_truth(served, tmp_path / "runs/r", 2)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["error", "hang"])
def test_trouble_in_the_middle_is_told_and_sync_repairs_it(tmp_path, server, mode):
    directory = tmp_path / "runs/r"
    words = [*WORDS, "run.max_steps=12", "tracker.finish_timeout_s=4"]
    process = start(tmp_path, *words)
    wait_until(process, lambda: last_step(directory) >= 3)
    server.mode = mode
    code, out, err = finish(process)
    assert code == 0, out + err
    assert "not finished after 4 s and ended" in out
    assert "1 errors; metrics.jsonl is complete, and `selfdistill sync RUN`" in out
    assert "Traceback" not in out + err
    assert len(numbers(directory)) == 12
    server.mode = "work"
    assert "12 lines of" in run(tmp_path, "sync", "r", "mode=online")
    rebuilt = json.loads((directory / "run.json").read_text())["wandb_id"] + "-rebuilt"
    assert_history_is_the_truth(server.runs[rebuilt], directory, 12)
    assert "12 lines of" in run(tmp_path, "sync", "r", "mode=online"), "as often as one likes"
    assert_history_is_the_truth(server.runs[rebuilt], directory, 12)


@pytest.mark.slow
def test_offline_segments_become_one_online_run_without_gaps(tmp_path, server):
    directory = tmp_path / "runs/r"
    words = [w for w in WORDS if not w.startswith("tracker.mode")]
    words += ["run.max_steps=8", "checkpoint.every=2", "checkpoint.keep=9"]
    process = start(tmp_path, *words)
    wait_until(process, lambda: last_step(directory) >= 5)
    process.send_signal(signal.SIGKILL)
    finish(process)
    run(tmp_path, *words)
    run(tmp_path, *words, "resume.step=4", "run.max_steps=9")
    assert len(list(directory.glob("wandb/offline-run-*"))) == 3
    run(tmp_path, "sync", "r", "mode=online", "group=final")
    run(tmp_path, *words, "run.max_steps=10")
    run(tmp_path, "sync", "r", "mode=online", "group=final")
    run_id, served = only_run(server)
    assert run_id == json.loads((directory / "run.json").read_text())["wandb_id"]
    assert_history_is_the_truth(served, directory, 10)
    assert (served.fields["groupName"], served.fields["tags"]) == ("final", ["one", "two"])
    back = ["resume.step=8", "optim.lr=0.01", "resume.allow=[optim.lr]"]
    run(tmp_path, "resume", "r", *back)
    said = run(tmp_path, "sync", "r", "mode=online")
    assert f"in the W&B run {run_id}-2" in said
    assert_history_is_the_truth(server.runs[f"{run_id}-2"], directory, 10)
    said = run(tmp_path, "sync", "r", "mode=online", f"id={run_id}", expect=2)
    assert "W&B takes nothing back; choose another id" in said
