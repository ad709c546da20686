"""Searches with processes: killed, pruned, extended; and one whose cells train."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from sweeps import HERE, cells, end, environment, only_sweep, selfdistill, wait_for

from selfdistill_cli.analysis.ledger import ENDED, Cell
from selfdistill_cli.sweeping.journal import JOURNAL, open_study

LR = "optim.lr=tag(log,interval(1e-6,1e-2))"
DEEDS = {"2": "nan", "5": "crash"}


def search(
    folder: Path, *words: str, deeds: dict[str, str] | None = None, step_s: float = 0.01
) -> subprocess.Popen[str]:
    """Start a search whose cells do not train, one at a time."""
    fast = ("run.max_steps=5", "tracker=none", "launcher.jobs=1", "sweep=tpe")
    return subprocess.Popen(
        [sys.executable, str(HERE / "drive.py"), *fast, *words],
        cwd=folder,
        env=environment(CELL="valley", DEEDS=json.dumps(deeds or {}), STEP_S=str(step_s)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def trials_of(folder: Path) -> list[str]:
    """States of the trials of the one search, as Optuna reads them."""
    study = open_study(only_sweep(folder), ["maximize"])
    return [trial.state.name for trial in study.trials]


def chosen(folder: Path) -> list[str]:
    """The learning rates in the order in which they were proposed."""
    return [cell.values["optim.lr"] for cell in cells(folder).values()]


def ended(folder: Path) -> list[Cell]:
    return [cell for cell in cells(folder).values() if cell.status in ENDED]


def test_killed_search_goes_on_from_its_journal(tmp_path: Path) -> None:
    folder, whole = tmp_path / "killed", tmp_path / "whole"
    for path in (folder, whole):
        path.mkdir()
    words = (LR, "sweep.trials=10", "sweep.startup_trials=3")
    process = search(folder, *words, deeds=DEEDS, step_s=0.1)
    wait_for(lambda: len(ended(folder)) >= 4)
    wait_for(lambda: "running" in {cell.status for cell in cells(folder).values()})
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=20)
    assert len(cells(folder)) < 10
    said = end(search(folder, *words, deeds=DEEDS), expect=1)

    found = cells(folder)
    assert Counter(cell.status for cell in found.values()) == {"done": 8, "nan": 1, "failed": 1}
    assert max(cell.attempt for cell in found.values()) == 2  # the one that ran was continued
    assert Counter(trials_of(folder)) == {"COMPLETE": 8, "PRUNED": 2}
    assert "10 of 10 trials: 8 complete, 1 failed, 1 nan" in _sorted_words(said)
    assert "nan: the objective is not finite" in said
    assert "failed: out of memory" in said
    assert "Traceback" not in said
    assert "[I 20" not in said
    assert "Warning" not in said

    # Without the kill it proposes the same.
    end(search(whole, *words, deeds=DEEDS), expect=1)
    assert chosen(folder) == chosen(whole)

    # More trials go on, and start nothing else.
    starts = [cell.attempt for cell in found.values()]
    said = end(search(folder, LR, "sweep.trials=12", "sweep.startup_trials=3"), expect=1)
    assert "best: trial" in said
    assert [cell.attempt for cell in cells(folder).values()] == [*starts, 1, 1]
    assert len(trials_of(folder)) == 12
    assert chosen(folder)[:10] == chosen(whole)


def _sorted_words(said: str) -> str:
    """The line of counts with its outcomes in the order of the alphabet."""
    line = next(line for line in said.splitlines() if " trials: " in line)
    before, _, words = line.partition(": ")
    return f"{before}: {', '.join(sorted(words.split(', '), key=lambda word: word.split()[1]))}"


def test_pruned_cells_end_early(tmp_path: Path) -> None:
    words = (LR, "sweep.trials=7", "sweep.pruner=median", "sweep.pruner_startup_trials=2")
    said = end(search(tmp_path, *words, "run.max_steps=15", step_s=0.05))
    pruned = [cell for cell in cells(tmp_path).values() if cell.status == "pruned"]
    assert 1 <= len(pruned) <= 5
    assert Counter(trials_of(tmp_path)) == {"COMPLETE": 7 - len(pruned), "PRUNED": len(pruned)}
    for cell in pruned:
        metrics = only_sweep(tmp_path) / cell.name / "metrics.jsonl"
        assert len(metrics.read_text().splitlines()) < 15
    assert f"{len(pruned)} pruned" in said
    for trial in open_study(only_sweep(tmp_path), ["maximize"]).trials:
        steps = len(trial.intermediate_values)
        assert steps == 15 if trial.state.name == "COMPLETE" else 1 <= steps < 15


def test_several_metrics_with_processes_and_seeds(tmp_path: Path) -> None:
    words = (
        LR, "seed=0,1", "sweep.trials=4", "sweep.metric=[eval/success,tokens/used]",
        "sweep.direction=[maximize,minimize]", "launcher.jobs=2",
    )  # fmt: skip
    said = end(search(tmp_path, *words))
    assert "4 of 4 trials: 4 complete" in said
    assert "beaten by no other in eval/success and tokens/used" in said
    found = list(cells(tmp_path).values())
    assert len(found) == 8
    assert all(isinstance(cell.objective, list) and len(cell.objective) == 2 for cell in found)
    study = open_study(only_sweep(tmp_path), ["maximize", "minimize"])
    by_name = {cell.name: cell.objective for cell in found}
    for trial in study.trials:
        pairs = [by_name[name] for name in trial.user_attrs["cells"]]
        means = [sum(column) / 2 for column in zip(*pairs, strict=True)]  # type: ignore[arg-type]
        assert trial.values == pytest.approx(means, rel=1e-12)


def test_a_combination_that_breaks_a_rule_is_a_trial_that_failed(tmp_path: Path) -> None:
    words = (LR, "method=grpo", "method.group_size=1,4", "sweep.trials=6", "sweep=random")
    said = end(search(tmp_path, *words), expect=1)
    statuses = Counter(cell.status for cell in cells(tmp_path).values())
    assert statuses["invalid"] >= 1
    assert statuses["invalid"] + statuses["done"] == 6
    assert Counter(trials_of(tmp_path)) == {
        "COMPLETE": statuses["done"], "PRUNED": statuses["invalid"],
    }  # fmt: skip
    assert "invalid: " in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["optim.lrr=interval(1e-6,1e-4)"], "did you mean 'lr'"),
        (["optim.lr=tag(lgo,interval(1e-6,1e-4))"], "there is no tag 'lgo'; did you mean 'log'"),
    ],
)
def test_mistakes_in_typing_stop_before_anything_is_written(
    tmp_path: Path, words: list[str], message: str
) -> None:
    said = selfdistill(tmp_path, "train", "-m", "sweep=tpe", *words, expect=2)
    assert message in said
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_without_optuna_nothing_starts(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/optuna.py").write_text("raise ImportError('no module named optuna')\n")
    done = subprocess.run(
        [sys.executable, "-m", "selfdistill_cli", "train", "-m", "sweep=tpe", LR],
        cwd=tmp_path,
        env={**environment(), "PYTHONPATH": f"{tmp_path / 'site'}:{HERE.parents[1]}"},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "sweep: cannot import optuna" in done.stderr
    assert 'pip install "optuna>=4,<6" (the extra `sweep`)' in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_search_whose_cells_train(tmp_path: Path) -> None:
    words = (
        "train", "-m", "sweep=tpe", "sweep.trials=3", "sweep.startup_trials=1", LR,
        "method=grpo,sdpo", "seed=0,1", "run.max_steps=2", "sweep.metric=reward/mean",
        "tracker=none", "method.group_size=2", "rollout.max_new_tokens=16",
    )  # fmt: skip
    said = selfdistill(tmp_path, *words, timeout=500)
    assert "3 of 3 trials: 3 complete" in said
    found = cells(tmp_path)
    assert len(found) == 6
    for name, cell in found.items():
        config = (only_sweep(tmp_path) / name / "config.yaml").read_text()
        assert f"lr: {float(cell.values['optim.lr'])}" in config
    assert (only_sweep(tmp_path) / JOURNAL).is_file()
    assert trials_of(tmp_path) == ["COMPLETE"] * 3
    assert os.listdir(tmp_path) == ["runs"]
