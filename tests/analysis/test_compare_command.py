"""`selfdistill compare` as a person types it."""

from __future__ import annotations

import csv
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from running import SMALL, finish, run, start
from written_runs import write_run

CURVE = {0: [[0], [0]], 2: [[1], [0]]}
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for method, seed in (("gear", 0), ("gear", 1), ("grpo", 0)):
        write_run(tmp_path / "runs", method, seed, CURVE)
    return tmp_path


def test_help_explains_the_command(tmp_path: Path) -> None:
    said = run(tmp_path, "compare", "--help")
    assert "selfdistill compare RUN [RUN ...]" in said
    assert run(tmp_path, "compare", expect=2) == said


def test_a_table_is_printed_and_four_files_are_written(folder: Path) -> None:
    said = run(folder, "compare", "g*", "--out", "report")
    rows = {line.split()[0]: line.split() for line in said.splitlines()[1:4]}
    assert rows["gear"][:3] == ["gear", "2", "0.000"]
    assert rows["gear"][3] == "0.500"
    assert "minus grpo" in said
    assert "fewer than 3 seeds (gear, grpo)" in said
    assert sorted(path.name for path in (folder / "report").iterdir()) == [
        "compare.csv", "compare.json", "compare.md", "curves.png",
    ]  # fmt: skip
    assert (folder / "report" / "curves.png").read_bytes().startswith(PNG)
    content = json.loads((folder / "report" / "compare.json").read_text())
    assert [row["label"] for row in content["results"]] == ["gear", "grpo"]
    assert content["results"][0]["end"]["point"] == 0.5
    table = (folder / "report" / "compare.md").read_text()
    assert "| gear | 2 | 0.000 | 0.500 [" in table
    assert "* gear: gear_0, gear_1" in table
    with (folder / "report" / "compare.csv").open() as file:
        gear, grpo = csv.DictReader(file)
    assert (gear["method"], gear["seeds"], float(gear["end"])) == ("gear", "0 1", 0.5)
    assert float(gear["minus_baseline"]) == 0.0
    assert grpo["minus_baseline"] == ""


def test_the_default_folder_is_the_same_for_the_same_runs(folder: Path) -> None:
    first = run(folder, "compare", "gear_0", "grpo_0")
    assert run(folder, "compare", "gear_0", "grpo_0") == first
    run(folder, "compare", "gear_1", "grpo_0")
    written = sorted((folder / "runs" / "compare").iterdir())
    assert len(written) == 2
    assert all(path.name.startswith("gear-grpo_") for path in written)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["gaer_0"], "error: 'gaer_0' is no run directory and no run under runs; did you mean"),
        (["empty"], "error: 'empty' is a directory without config.yaml, so it is no run"),
        (["gear_0", "--outt", "x"], "error: compare has no flag --outt; did you mean '--out'?"),
        (["gear_0", "rot=x"], "error: compare has no argument 'rot'; did you mean 'root'?"),
        (["gear_0", "--out"], "error: --out: expected a value after it, got nothing"),
        (["--partial"], "error: expected at least one RUN, got none"),
        (["gear_0", "--baseline=x"], "error: --baseline: there is no method 'x'; expected one of"),
        (["gear_0", "--out=runs/gear_0/run.json"], "error: --out: runs/gear_0/run.json cannot be"),
    ],
)
def test_wrong_input_is_explained_without_a_traceback(
    folder: Path, words: list[str], expected: str
) -> None:
    (folder / "empty").mkdir()
    code, out, err = finish(start(folder, "compare", *words))
    assert (code, out) == (2, "")
    assert err.startswith(expected)
    assert "Traceback" not in err
    assert not (folder / "runs" / "compare").exists()


def test_a_broken_metrics_line_is_told_and_the_rest_compared(folder: Path) -> None:
    path = folder / "runs" / "gear_1" / "metrics.jsonl"
    path.write_text("nonsense\n" + path.read_text())
    said = run(folder, "compare", "g*")
    assert "left out: gear_1: metrics.jsonl line 1: found b'nonsense'" in said
    partial = run(folder, "compare", "g*", "--partial")
    assert "partial: gear_1: metrics.jsonl line 1" in partial


def test_a_terminal_gets_a_drawn_table_with_its_brackets(folder: Path) -> None:
    leader, follower = pty.openpty()
    code = "import sys; from selfdistill_cli.cli.main import main; sys.exit(main(sys.argv[1:]))"
    said = subprocess.run(
        [sys.executable, "-c", code, "compare", "gear_0", "gear_1"],
        cwd=folder,
        stdout=follower,
        stderr=subprocess.PIPE,
        env={**os.environ, "COLUMNS": "160", "TERM": "xterm"},
        timeout=120,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    drawn = os.read(leader, 65536).decode()
    assert "┃" in drawn
    assert "0.500 [0.000, 1.000]" in drawn


def test_nothing_of_the_trainer_is_imported(folder: Path) -> None:
    code = (
        "import sys; from selfdistill_cli.cli.main import main; main(['compare', 'gear_0']); "
        "print([m for m in ('torch', 'transformers', 'hydra', 'matplotlib.pyplot') "
        "if m in sys.modules], file=sys.stderr)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    assert said.stderr == "[]\n"


def test_runs_of_the_trainer_are_compared(tmp_path: Path) -> None:
    small = (*SMALL, "run.max_steps=2", "eval.every=1", "batch.tasks_per_step=2")
    for method, seed in (("grpo", 0), ("gear", 0), ("gear", 1)):
        words = (f"method={method}", f"seed={seed}", f"run.name={method}_{seed}")
        run(tmp_path, "train", *words, *small)
    said = run(tmp_path, "compare", "gear_*", "grpo_0", "out=report")
    content = json.loads((tmp_path / "report" / "compare.json").read_text())
    gear, grpo = content["results"]
    assert (gear["label"], gear["seeds"]) == ("gear", [0, 1])
    assert content["baseline"] == grpo["label"] == "grpo"
    # Two steps of two tasks with four episodes each.
    assert content["budget"] == 16
    assert gear["curve"]["episodes"] == [0.0, 8.0, 16.0]
    for name, seed in (("gear", 0), ("gear", 1), ("grpo", 0)):
        lines = (tmp_path / "runs" / f"{name}_{seed}" / "metrics.jsonl").read_text().splitlines()
        assert json.loads(lines[-1])["step"] == 2
    ends = [
        json.loads((tmp_path / "runs" / f"gear_{s}" / "metrics.jsonl").read_text().splitlines()[2])
        for s in (0, 1)
    ]
    assert gear["end"]["point"] == pytest.approx(sum(line["eval/success"] for line in ends) / 2)
    assert set(gear["seconds"]) == {"act", "judge", "learn", "follow", "step"}
    assert "protocol differs" not in said
    assert "left out" not in said
