"""Copies of metrics.jsonl for TensorBoard and Trackio, sinks of users, and several at once."""

from __future__ import annotations

import json
import socket
import sqlite3
import sys
import threading
import time

import pytest
from running import run
from wandb_files import contents

from selfdistill_cli.config import rules
from selfdistill_cli.config.compose import compose
from selfdistill_cli.core.errors import UserError
from selfdistill_cli.tracking import sinks
from selfdistill_cli.tracking.metrics_file import MetricsFile
from selfdistill_cli.tracking.settings import (
    SeveralSettings,
    TensorboardSettings,
    TrackerSettings,
    TrackioSettings,
    WandbSettings,
)

LIMITS = {"log_timeout_s": 1.0, "finish_timeout_s": 60.0, "samples": 2, "sample_characters": 5}
TENSORBOARD = TensorboardSettings(**LIMITS)
TRACKIO = TrackioSettings(project="p", group=None, folder=None, **LIMITS)
WANDB = WandbSettings(
    mode="offline", project="p", entity=None, group=None, job_type=None, name=None, notes=None,
    tags=[], init_timeout_s=30.0, **LIMITS,
)  # fmt: skip


def two_attempts(settings, run_dir):
    """Steps 0 to 3, then again from 2, as after a return to the checkpoint of step 1."""
    run_dir.mkdir()
    metrics, name = MetricsFile(run_dir / "metrics.jsonl"), run_dir.name
    for steps, value in ((range(4), 0.0), (range(2, 6), 100.0)):
        metrics.truncate_after(steps[0] - 1)
        sink = settings.build(run_dir, name, "cafe0123", {"a": {"api_key": "k", "b": 1}}, print)
        for step in steps:
            line = {"reward/mean": value + step, "loss/bad": float("nan")}
            metrics.append(step, line)
            sink.log(step, line)
        sink.finish("finished")
        assert sink.health() == {
            "state": "closed", "accepted": 4, "dropped": 0, "errors": 0,
        }, (sink.folder / "worker.log").read_text()  # fmt: skip


def write_episodes(run_dir, step, texts):
    folder = run_dir / "trajectories"
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {"task": f"t{i}", "reward": 0.5, "success": 0.0, "stop": "done", "prompt": "p" * 9,
         "turns": [{"text": text}]} for i, text in enumerate(texts)
    ]  # fmt: skip
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / f"step_{step:06d}.jsonl").write_text(lines)


def test_tensorboard_holds_every_step_once_after_a_return_to_a_checkpoint(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    two_attempts(TENSORBOARD, tmp_path / "r")
    files = list((tmp_path / "r/tensorboard").glob("events.out.tfevents.*"))
    assert len(files) == 1
    found = accumulator.EventAccumulator(str(files[0]))
    found.Reload()
    values = [(event.step, event.value) for event in found.Scalars("reward/mean")]
    assert values == [(0, 0), (1, 1), (2, 102), (3, 103), (4, 104), (5, 105)]
    assert found.Tags()["scalars"] == ["reward/mean"]
    (text,) = found.Tensors("config")[0].tensor_proto.string_val
    assert b'"api_key": "<removed>"' in text


def test_samples_are_few_and_short(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    write_episodes(tmp_path, 1, ["answer\x00 and more", "b", "third"])
    for settings in (TENSORBOARD, WANDB):
        sink = settings.build(tmp_path, "r", "cafe0123", {}, print)
        for step in (1, 2):
            sink.log(step, {"x": 1.0})
        sink.finish("finished")
        assert sink.health()["errors"] == 0
    found = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    (event,) = found.Tensors("samples")
    (text,) = event.tensor_proto.string_val
    assert event.step == 1
    assert "answe…" in text.decode()
    assert "third" not in text.decode()
    (table,) = tmp_path.glob("wandb/offline-run-*/files/media/table/*.json")
    rows = json.loads(table.read_text())
    assert rows["columns"] == ["task", "reward", "success", "stop", "prompt", "answer"]
    assert [row[-2:] for row in rows["data"]] == [["ppppp…", "answe…"], ["ppppp…", "b"]]


def test_trackio_holds_every_step_once_and_other_runs_stay(tmp_path):
    pytest.importorskip("trackio")
    two_attempts(TRACKIO, tmp_path / "one")
    two_attempts(TRACKIO, tmp_path / "two")
    with sqlite3.connect(tmp_path / "trackio/p.db") as database:
        rows = database.execute("select run_name, step, metrics from metrics").fetchall()
    for name in ("one", "two"):
        found = {step: json.loads(text)["reward/mean"] for n, step, text in rows if n == name}
        assert found == {0: 0, 1: 1, 2: 102, 3: 103, 4: 104, 5: 105}
    assert len(rows) == 12


def test_a_package_that_is_missing_is_told_before_anything_starts(monkeypatch):
    for module in ("tensorboard", "trackio"):
        monkeypatch.setitem(sys.modules, module, None)
    (found,) = rules.violations(compose(["tracker=wandb_tensorboard"]).settings)
    assert found.startswith("tracker.sinks.tensorboard: cannot import tensorboard")
    assert 'pip install "tensorboard' in found
    (found,) = rules.violations(compose(["tracker=trackio"]).settings)
    assert found.startswith("tracker: cannot import trackio")
    chosen = compose(["tracker=all", "~tracker.sinks.trackio", "~tracker.sinks.tensorboard"])
    assert rules.violations(chosen.settings) == []


class Hanging:
    """A sink of a user that never comes back."""

    def __init__(self, *arguments):
        self.released = threading.Event()

    def log(self, step, metrics):
        self.released.wait(60)

    def finish(self, status):
        self.released.wait(60)


class Raising(Hanging):
    """A sink of a user that raises at every second line."""

    seen: list = []  # noqa: RUF012

    def log(self, step, metrics):
        if step % 2:
            raise RuntimeError(f"no step {step}")
        self.seen.append((step, metrics["x"]))

    def finish(self, status):
        self.seen.append(status)


class Deaf:
    """No sink at all."""

    def __init__(self, *arguments):
        pass

    def lgo(self, step, metrics):
        pass


class DeafSettings(TrackerSettings):
    implementation = "test_copies:Deaf"


class HangingSettings(TrackerSettings):
    implementation = "test_copies:Hanging"


class RaisingSettings(TrackerSettings):
    implementation = "test_copies:Raising"


def test_sinks_of_users_may_hang_and_raise(tmp_path, monkeypatch):
    monkeypatch.setattr(sinks, "FINISH_TIMEOUT_S", 1.0)
    said: list[str] = []
    tracker = SeveralSettings(sinks={"slow": HangingSettings(), "bad": RaisingSettings()})
    opened = sinks.open_sinks(tracker, tmp_path, "r", "cafe0123", {}, said.append, said.append)
    start = time.monotonic()
    for step in range(1200):
        for sink in opened:
            sink.log(step, {"x": 0.5})
    assert time.monotonic() - start < 5
    health = sinks.finish_sinks(opened, "finished")
    assert time.monotonic() - start < 10
    slow, bad = health["tracker.sinks.slow"], health["tracker.sinks.bad"]
    assert slow["accepted"] + slow["dropped"] == 1200
    assert slow["dropped"] > 100
    assert bad["accepted"] + bad["dropped"] == 1200
    assert bad["errors"] >= bad["accepted"] // 2
    assert Raising.seen[:2] == [(0, 0.5), (2, 0.5)]
    assert Raising.seen[-1] == "finished"
    told = {line.partition(":")[0]: line for line in said if "in all" in line}
    assert set(told) == set(health)
    assert f"in all {slow['dropped']} lines dropped" in told["tracker.sinks.slow"]
    assert len([line for line in said if "bad: RuntimeError: no step 1" in line]) == 1


def test_a_copy_that_is_refused_closes_the_others(tmp_path, monkeypatch):
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    online = compose(["tracker.mode=online"]).settings.tracker
    tracker = SeveralSettings(sinks={"bad": RaisingSettings(), "wandb": online})
    Raising.seen.clear()
    missing = "tracker: .*Deaf has no log.*did you mean 'lgo'.*, finish"
    with pytest.raises(UserError, match=missing):
        sinks.open_sinks(DeafSettings(), tmp_path, "r", "cafe0123", {}, print, print)
    with pytest.raises(UserError, match="W&B refused the run"):
        sinks.open_sinks(tracker, tmp_path, "r", "cafe0123", {}, print, print)
    assert Raising.seen == ["failed"]


def test_a_run_with_trackers_asks_nothing_of_the_network(tmp_path, monkeypatch):
    """Every library here obeys the variables of proxies; nobody may come to the one named."""
    pytest.importorskip("tensorboard")
    with socket.socket() as proxy:
        proxy.bind(("127.0.0.1", 0))
        proxy.listen(16)
        address = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, address)
            monkeypatch.setenv(name.lower(), address)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("JUDGE_API_KEY", "judge-0123456789")
        words = [
            "train", "method=grpo", "run.num_threads=1", "batch.tasks_per_step=2", "eval.every=0",
            "method.group_size=2", "env.sandbox.workers=1", "run.max_steps=2", "run.name=a",
            "tracker=wandb_tensorboard", "tracker.sinks.wandb.notes=judge-0123456789",
        ]  # fmt: skip
        out = run(tmp_path, *words)
        proxy.settimeout(0.2)
        with pytest.raises(TimeoutError):
            proxy.accept()
    assert "dropped" not in out
    folder = tmp_path / "runs/a"
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    config = contents(file)["config"]
    assert any(line.startswith("memory ") for line in config["recorded"]["environment"])
    assert "judge-0123456789" not in (folder / "command.txt").read_text()
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".yaml":
            assert b"judge-0123456789" not in path.read_bytes(), path
    health = json.loads((folder / "run.json").read_text())["trackers"]
    assert {name: h["accepted"] for name, h in health.items()} == {"W&B": 2, "TensorBoard": 2}
