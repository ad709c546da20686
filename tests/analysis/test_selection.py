"""Which runs are meant, which are left out, and what is said about it."""

from __future__ import annotations

from pathlib import Path

import pytest
from written_runs import write_evaluation, write_run

from selfdistill_cli.analysis.selection import find_runs, usable_runs
from selfdistill_cli.core.errors import UserError

CURVE = {0: [[0], [0]], 2: [[1], [0]]}


def test_names_paths_and_globs_mean_runs_and_each_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for method, seed in (("gear", 0), ("gear", 1), ("grpo", 0)):
        write_run(tmp_path / "runs", method, seed, CURVE)
    (tmp_path / "runs" / "gear_notes").mkdir()
    words = ["grpo_0", "gear_*", "runs/gear_1", str(tmp_path / "runs" / "gear_0")]
    assert [path.name for path in find_runs(words, "runs")] == ["grpo_0", "gear_0", "gear_1"]
    assert [path.name for path in find_runs(["runs/gr*"], "elsewhere")] == ["grpo_0"]


def test_a_name_with_brackets_is_a_name_first(tmp_path: Path) -> None:
    write_run(tmp_path, "gear", 0, CURVE, name="gear[1]")
    assert [path.name for path in find_runs(["gear[1]"], str(tmp_path))] == ["gear[1]"]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("gaer_0", "is no run directory and no run under .*did you mean 'gear_0'.*there: gear_0"),
        ("nothing_*", "'nothing_.*matches no run under .*there: gear_0"),
        ("empty", "'empty' is a directory without config.yaml.*name a run directory"),
        ("folder", r"without config.yaml.*for the runs inside it, give '.*folder/\*'"),
    ],
)
def test_a_word_that_means_no_run_is_explained(tmp_path: Path, word: str, said: str) -> None:
    write_run(tmp_path, "gear", 0, CURVE)
    write_run(tmp_path / "folder", "gear", 0, CURVE)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=said):
        find_runs([word], str(tmp_path))


def test_unfinished_runs_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    whole = write_run(tmp_path, "gear", 0, CURVE)
    killed = write_run(
        tmp_path, "gear", 1, {0: [[0], [0]], 1: [[0], [1]]}, status="running", last_step=1
    )
    longer = write_run(tmp_path, "gear", 2, CURVE, **{"run.max_steps": 3})
    runs, notes = usable_runs([whole, killed, longer], partial=False)
    assert [run.name for run in runs] == ["gear_0"]
    assert notes == [
        "left out: gear_1: not finished (status running, step 1 of 2); --partial takes it in",
        "left out: gear_2: not finished (status finished, step 2 of 3); --partial takes it in",
    ]
    runs, notes = usable_runs([whole, killed, longer], partial=True)
    assert [run.name for run in runs] == ["gear_0", "gear_1", "gear_2"]
    assert notes[0] == "partial: gear_1: not finished (status running, step 1 of 2)"


def test_a_broken_line_is_named_and_a_torn_last_one_is_nothing(tmp_path: Path) -> None:
    whole = write_run(tmp_path, "gear", 0, CURVE)
    with (whole / "metrics.jsonl").open("a") as file:
        file.write('{"step":3,"rew')
    broken = write_run(tmp_path, "gear", 1, CURVE)
    lines = (broken / "metrics.jsonl").read_text().splitlines()
    (broken / "metrics.jsonl").write_text("\n".join([lines[0], "{oops", lines[2]]) + "\n")
    runs, notes = usable_runs([whole, broken], partial=False)
    assert [run.name for run in runs] == ["gear_0"]
    assert notes == [
        "left out: gear_1: metrics.jsonl line 2: found b'{oops', expected a JSON object with a "
        "`step`; --partial takes it in"
    ]
    runs, _ = usable_runs([whole, broken], partial=True)
    assert [run.name for run in runs] == ["gear_0", "gear_1"]


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("config.yaml", "seed: [", "config.yaml: not the configuration of a run"),
        ("config.yaml", "seed: 1\n", "no key 'method'.*logs/attempt_<n>/config.yaml is a copy"),
        ("run.json", "", "run.json cannot be read"),
        ("evaluations/step_000002.json", "{}", "step_000002.json cannot be read.*'successes'"),
        (
            "evaluations/step_000002.json",
            '{"step": 2, "task_ids": ["a"], "successes": [[null]]}',
            "step_000002.json cannot be read.*needs numbers",
        ),
        ("evaluations/step_000000.json", "[", "step_000000.json|first evaluation is of step 2"),
    ],
)
def test_what_cannot_be_read_is_named_and_left_out(
    tmp_path: Path, file: str, content: str, said: str
) -> None:
    write_run(tmp_path, "gear", 0, CURVE)
    broken = write_run(tmp_path, "gear", 1, CURVE)
    (broken / file).write_text(content)
    runs, notes = usable_runs(find_runs(["*"], str(tmp_path)), partial=False)
    assert [run.name for run in runs] == ["gear_0"]
    assert len(notes) == 1
    assert notes[0].startswith("left out: gear_1: ")
    with pytest.raises(UserError, match=f"no run is left to compare\nleft out: gear_1: .*({said})"):
        usable_runs([broken], partial=False)


def test_a_panel_that_changed_within_a_run_is_left_out(tmp_path: Path) -> None:
    path = write_run(tmp_path, "gear", 0, CURVE)
    write_evaluation(path, 1, [[0], [0]], tasks=["other", "ones"])
    with pytest.raises(UserError, match="evaluations are of 2 panels"):
        usable_runs([path], partial=True)


def test_a_run_without_evaluations_is_an_error_with_its_remedy(tmp_path: Path) -> None:
    whole = write_run(tmp_path, "gear", 0, CURVE)
    without = write_run(tmp_path, "grpo", 0, {}, last_step=2, **{"eval.every": 0})
    with pytest.raises(UserError, match=r"grpo_0: it has no evaluations \(eval.every=0\).*eval.ev"):
        usable_runs([whole, without], partial=True)


def test_a_run_that_has_just_begun_is_left_out(tmp_path: Path) -> None:
    whole = write_run(tmp_path, "gear", 0, CURVE)
    begun = write_run(tmp_path, "gear", 1, {}, status="running")
    runs, notes = usable_runs([whole, begun], partial=True)
    assert [run.name for run in runs] == ["gear_0"]
    assert notes[0].startswith("left out: gear_1: no evaluation yet; not finished (status running")


def test_a_repetition_of_a_seed_is_no_second_seed(tmp_path: Path) -> None:
    one = write_run(tmp_path, "gear", 0, CURVE)
    again = write_run(tmp_path, "gear", 0, CURVE, name="again")
    runs, notes = usable_runs([one, again], partial=False)
    assert [run.name for run in runs] == ["gear_0"]
    assert notes == ["left out: again: the same settings and seed as gear_0"]
