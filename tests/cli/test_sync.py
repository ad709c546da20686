"""One gap-free W&B run from metrics.jsonl."""

from __future__ import annotations

import shutil

import pytest
from running import numbers, run
from wandb_files import contents

from selfdistill_cli.cli import sync
from selfdistill_cli.core.errors import UserError
from selfdistill_cli.tracking.metrics_file import MetricsFile
from selfdistill_cli.training.run_directory import RunDirectory

SMALL = ["method=grpo", "run.num_threads=1", "batch.tasks_per_step=2", "method.group_size=2",
         "eval.every=0", "env.sandbox.workers=1", "run.name=a"]  # fmt: skip


def test_a_rewound_run_becomes_one_run_with_every_step_once(tmp_path):
    words = ["train", *SMALL, "checkpoint.every=1", "checkpoint.keep=9"]
    run(tmp_path, *words, "run.max_steps=3")
    run(tmp_path, *words, "run.max_steps=3", "resume.step=1")
    assert len(list(tmp_path.glob("runs/a/wandb/offline-run-*"))) == 2, "two attempts, two segments"
    said = run(tmp_path, "sync", "a", "group=final")
    assert "3 lines of" in said
    (file,) = tmp_path.glob("runs/a/wandb_rebuilt/wandb/offline-run-*/run-*.wandb")
    found = contents(file)
    rows = {row["step"]: row for row in found["history"]}
    assert [row["step"] for row in found["history"]] == [1, 2, 3]
    for line in numbers(tmp_path / "runs/a"):
        for key, value in line.items():
            if value is not None:
                assert rows[line["step"]][key] == pytest.approx(value, rel=1e-12)
    assert found["run"].run_group == "final"
    assert found["config"]["seed"] == 0
    again = run(tmp_path, "sync", "a")
    assert "3 lines" in again
    assert len(list(tmp_path.glob("runs/a/wandb_rebuilt/wandb/offline-run-*"))) == 1


def test_the_copy_for_tensorboard_is_written_anew_unless_the_run_is_going(tmp_path, monkeypatch):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run(tmp_path, "train", *SMALL, "run.max_steps=2", "tracker=none")
    monkeypatch.chdir(tmp_path)
    directory = RunDirectory(tmp_path / "runs/a")
    directory.hold()
    with pytest.raises(UserError, match="in use by process"):
        sync.main(["a", "tracker=tensorboard"])
    directory.close()
    for _ in range(2):
        assert sync.main(["a", "tracker=tensorboard"]) == 0
    found = accumulator.EventAccumulator(str(tmp_path / "runs/a/tensorboard"))
    found.Reload()
    assert [event.step for event in found.Scalars("reward/mean")] == [1, 2]
    assert [event.step for event in found.Tensors("samples")] == [1]


def test_a_run_without_lines_and_wrong_words_are_told(tmp_path):
    run(tmp_path, "train", *SMALL, "run.max_steps=1", "tracker=none")
    shutil.move(tmp_path / "runs/a/metrics.jsonl", tmp_path / "aside")
    assert "no such file" in run(tmp_path, "sync", "a", expect=2)
    MetricsFile(tmp_path / "runs/a/metrics.jsonl").append(1, {"x": 1.0})
    assert "1 lines of" in run(tmp_path, "sync", "a"), "tracker=none recorded nothing until now"
    for words, expected in [
        (["a", "mod=online"], "did you mean 'mode'"),
        (["a", "mode=live"], "expected offline or online"),
        (["a", "id=a b"], "expected up to 64 letters"),
        (["a", "b"], "expected one RUN, got a, b"),
        (["a", "tracker=tensorbord"], "did you mean 'tensorboard'"),
        (["a", "tracker=trackio", "mode=online"], "mode: is for tracker=wandb"),
    ]:
        with pytest.raises(UserError, match=expected):
            sync.parse(words)
