"""The proposer of a search by itself: what it proposes, tells its study, and refuses."""

from __future__ import annotations

import math
from pathlib import Path
from typing import cast

import pytest
from searches import Objective, Values, make_search, play

from selfdistill_cli.analysis.ledger import Cell, Status
from selfdistill_cli.config.axes import read_space
from selfdistill_cli.config.catalog import config_dirs
from selfdistill_cli.sweeping.journal import JOURNAL
from selfdistill_cli.sweeping.search import Search

LR = "optim.lr=tag(log,interval(1e-6,1e-1))"


def peak(values: Values) -> tuple[Status, Objective]:
    """Best at optim.lr = 1e-4 with groups of 7."""
    far = abs(math.log10(float(values["optim.lr"])) + 4) ** 2
    return "done", -far - (int(values["method.group_size"]) - 7) ** 2 / 10


def states(search: Search) -> list[str]:
    return [trial.state.name for trial in search.study.trials]


def cells_of(search: Search) -> dict[str, Cell]:
    """What the ledger would hold."""
    return {cell.name: cell for cell in search.cells.values()}


def test_tpe_finds_the_peak_better_than_random(tmp_path: Path) -> None:
    best: dict[str, float] = {}
    ten: dict[str, float] = {}
    for option in ("tpe", "random"):
        (tmp_path / option).mkdir()
        search = make_search(
            tmp_path / option, option, LR, "method.group_size=int(interval(2,40))", trials=40
        )
        found = sorted(float(str(peak(values)[1])) for values in play(search, peak))
        assert len(found) == 40
        best[option], ten[option] = found[-1], sum(found[-10:]) / 10
    assert best["tpe"] > best["random"]
    assert ten["tpe"] > ten["random"] + 1.0
    assert best["tpe"] > -0.2


def test_values_are_inside_their_axes_and_read_back_equal(tmp_path: Path) -> None:
    search = make_search(
        tmp_path, "random", LR, "method.terms.a.coefficient=interval(-1,1)",
        "method.group_size=tag(log,int(interval(2,64)))", "seed=range(0,10,3)",
        "optim.x=range(0.1,0.5,0.1)", "method=gear,grpo", averaged=[], trials=60,
    )  # fmt: skip
    seen = play(search, lambda values: ("done", 0.0))
    assert len(seen) == 60
    trials = search.study.trials
    for values, trial in zip(seen, trials, strict=True):
        assert list(values) == [
            "optim.lr", "method.terms.a.coefficient", "method.group_size", "seed", "optim.x",
            "method",
        ]  # fmt: skip
        lr, weight = float(values["optim.lr"]), float(values["method.terms.a.coefficient"])
        assert 1e-6 <= lr <= 1e-1
        assert -1 <= weight <= 1
        assert lr == trial.params["optim.lr"]
        assert weight == trial.params["method.terms.a.coefficient"]
        assert 2 <= int(values["method.group_size"]) <= 64
        assert int(values["method.group_size"]) == trial.params["method.group_size"]
    assert {values["seed"] for values in seen} == {"0", "3", "6", "9"}
    assert {values["optim.x"] for values in seen} == set(
        read_space(["optim.x=range(0.1,0.5,0.1)"], config_dirs(None)).axes[0].values
    )  # as a grid would write them
    assert {values["method"] for values in seen} == {"gear", "grpo"}
    decades = [math.floor(math.log10(float(values["optim.lr"]))) for values in seen]
    assert all(decades.count(decade) >= 4 for decade in range(-6, -1))  # even in the logarithm
    small = sum(int(values["method.group_size"]) <= 11 for values in seen)
    assert 20 <= small <= 40


def test_the_same_seed_proposes_the_same_after_any_stop(tmp_path: Path) -> None:
    words = (LR, "method.group_size=int(interval(2,40))")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    whole = make_search(tmp_path / "a", "tpe", *words, trials=25)
    expected = play(whole, peak)
    known: dict[str, Cell] = {}
    seen: list[Values] = []
    for stop in (3, 14, 25):
        search = make_search(tmp_path / "b", "tpe", *words, trials=25, known=known)
        seen += play(search, peak, most=stop - len(seen))
        known = cells_of(search)
        with (tmp_path / "b" / JOURNAL).open("ab") as file:
            file.write(b'{"op_code":4,"worker')  # a line that the end of the process cut off
        (tmp_path / "b" / f"{JOURNAL}.lock").symlink_to("nobody")  # and its lock
    assert seen == expected
    other = make_search(tmp_path, "tpe", *words, trials=25, seed=1)
    assert play(other, peak, most=1) != expected[:1]


def test_trials_that_went_wrong_count_and_are_avoided(tmp_path: Path) -> None:
    """Two fifths of the space fail; told as FAIL, Optuna proposes nothing else after a while."""

    def judge(values: Values) -> tuple[Status, Objective]:
        lr = float(values["optim.lr"])
        if lr > 1e-3:
            return ("nan", None) if lr > 1e-2 else ("failed", None)
        return "done", 0.5

    search = make_search(tmp_path, "tpe", LR, trials=50)
    seen = play(search, judge)
    assert len(seen) == 50
    assert search.finished()
    wrong = [float(values["optim.lr"]) > 1e-3 for values in seen]
    assert states(search) == ["PRUNED" if bad else "COMPLETE" for bad in wrong]
    assert sum(wrong[:20]) >= 4
    assert sum(wrong[20:]) <= 9
    words = [trial.user_attrs["outcome"] for trial in search.study.trials]
    assert words.count("nan") == sum(float(values["optim.lr"]) > 1e-2 for values in seen)


def test_cancelled_and_without_a_value_say_nothing(tmp_path: Path) -> None:
    told: list[tuple[Status, Objective]] = [("cancelled", None), ("done", None), ("done", 1.0)]
    search = make_search(tmp_path, "tpe", LR, trials=3)
    play(search, lambda values: told.pop(0))
    assert states(search) == ["FAIL", "FAIL", "COMPLETE"]
    assert search.report()[0] == "3 of 3 trials: 1 cancelled, 1 no value, 1 complete"
    assert search.report()[1] == "best: trial 2: eval/success 1"


def test_seeds_are_averaged_before_trials_are_ranked(tmp_path: Path) -> None:
    def judge(values: Values) -> tuple[Status, Objective]:
        return "done", float(values["seed"]) + (10 if values["method"] == "grpo" else 0)

    search = make_search(tmp_path, "tpe", "method=gear,grpo", "seed=0,1,5", trials=10)
    seen = play(search, judge)
    assert len(seen) == 6  # two trials are all there are
    assert sorted(trial.value for trial in search.study.trials if trial.state.name == "COMPLETE"
                  and "repeats" not in trial.user_attrs) == [2.0, 12.0]  # fmt: skip
    assert "best: trial" in search.report()[1]
    assert search.report()[2] == "    method=grpo"
    # Another seed: the trials are open again, and only its cells are proposed.
    more = make_search(
        tmp_path, "tpe", "method=gear,grpo", "seed=0,1,5,6", trials=10, known=cells_of(search)
    )
    assert sorted((v["method"], v["seed"]) for v in play(more, judge)) == [
        ("gear", "6"), ("grpo", "6"),
    ]  # fmt: skip
    assert more.study.best_value == 13.0


def test_a_trial_goes_no_further_once_a_seed_of_it_failed(tmp_path: Path) -> None:
    search = make_search(tmp_path, "random", LR, "seed=0,1,2", trials=4)
    seen = play(search, lambda values: ("failed" if values["seed"] == "1" else "done", 0.5))
    assert [values["seed"] for values in seen] == ["0", "1"] * 4
    assert states(search) == ["PRUNED"] * 4


def test_a_repeat_runs_nothing_and_a_small_space_ends(tmp_path: Path) -> None:
    search = make_search(tmp_path, "random", "method=gear,grpo,sspo", trials=50)
    seen = play(search, lambda values: ("done", 0.1))
    assert sorted(values["method"] for values in seen) == ["gear", "grpo", "sspo"]
    assert search.finished()
    assert search.report()[0] == "3 of 3 trials: 3 complete"


def test_cells_that_are_started_again_are_told_again(tmp_path: Path) -> None:
    search = make_search(tmp_path, "tpe", LR, trials=5)
    told = ["done", "failed", "done", "done", "done"]
    play(search, lambda values: (cast("Status", told.pop(0)), 0.1))
    before = [trial.params for trial in search.study.trials]
    known = cells_of(search)
    failed = next(name for name, cell in known.items() if cell.status == "failed")
    known[failed] = Cell(name=failed, values=known[failed].values, status="pending")
    again = make_search(tmp_path, "tpe", LR, trials=5, known=known)
    assert again.next() is None  # the ledger has it: the engine starts it
    assert states(again) == ["COMPLETE", "RUNNING", "COMPLETE", "COMPLETE", "COMPLETE"]
    again.tell(failed, "done", 0.9)
    assert again.study.best_trial.number == 1
    assert [trial.params for trial in again.study.trials] == before


def test_a_lost_journal_is_made_again_from_the_ledger(tmp_path: Path) -> None:
    words = (LR, "method=gear,grpo", "seed=0,1")
    search = make_search(tmp_path, "tpe", *words, trials=6)
    play(search, lambda values: ("done", float(values["optim.lr"])))
    before = [(trial.params, trial.values) for trial in search.study.trials]
    (tmp_path / JOURNAL).unlink()
    again = make_search(tmp_path, "tpe", *words, trials=6, known=cells_of(search))
    assert [(trial.params, trial.values) for trial in again.study.trials] == before
    assert again.next() is None


def test_more_choices_than_before_keep_the_trials(tmp_path: Path) -> None:
    search = make_search(tmp_path, "tpe", LR, "method=gear,grpo", trials=12)
    play(search, lambda values: ("done", 0.5))
    before = [trial.params for trial in search.study.trials]
    more = make_search(
        tmp_path, "tpe", LR, "method=gear,grpo,sspo", trials=30, known=cells_of(search)
    )
    assert len(play(more, lambda values: ("done", float(values["method"] == "sspo")))) == 18
    assert [trial.params for trial in more.study.trials[:12]] == before
    assert more.study.best_trial.params["method"] == "sspo"


def test_a_bad_trial_is_pruned_early(tmp_path: Path) -> None:
    search = make_search(
        tmp_path, "tpe", LR, trials=8, pruner="median", pruner_startup_trials=3,
        pruner_warmup_steps=2,
    )  # fmt: skip
    ended: list[int] = []
    for trial in range(8):
        planned = search.next()
        assert planned is not None
        search.named(f"cell{trial}", planned)
        level = 0.0 if trial == 5 else 1.0 + trial
        stopped = [s for s in range(1, 11) if search.should_stop(f"cell{trial}", s, level * s)]
        ended.append(stopped[0] if stopped else 0)
        search.tell(f"cell{trial}", "pruned" if stopped else "done", None if stopped else level)
    assert ended == [0, 0, 0, 0, 0, 2, 0, 0]  # no earlier than the warm-up says
    assert states(search)[5] == "PRUNED"
    assert search.study.trials[5].intermediate_values == {1: 0.0, 2: 0.0}
    assert search.study.trials[4].intermediate_values[10] == 50.0


@pytest.mark.parametrize("pruner", ["halving", "hyperband"])
def test_rungs_stop_most_trials_after_their_first_steps(tmp_path: Path, pruner: str) -> None:
    search = make_search(
        tmp_path, "random", LR, trials=12, pruner=pruner, pruner_warmup_steps=2,
        reduction_factor=2,
    )  # fmt: skip
    lengths: list[int] = []
    for trial in range(12):
        planned = search.next()
        assert planned is not None
        search.named(f"cell{trial}", planned)
        level = 12.0 - trial  # each is worse than all before it
        step = 1
        while step < 16 and not search.should_stop(f"cell{trial}", step, level):
            step += 1
        lengths.append(step)
        search.tell(f"cell{trial}", "done" if step == 16 else "pruned", level)
    assert lengths[0] == 16
    assert sum(length < 16 for length in lengths) >= 6
    assert min(lengths) >= 2


def test_a_step_of_several_seeds_counts_when_all_have_it(tmp_path: Path) -> None:
    search = make_search(
        tmp_path, "tpe", LR, "seed=0,1", trials=2, pruner="median", pruner_startup_trials=1
    )
    for trial, level in enumerate((1.0, 0.1)):
        names = [f"{trial}a", f"{trial}b"]
        for name in names:
            planned = search.next()
            assert planned is not None
            search.named(name, planned)
        assert not search.should_stop(names[0], 1, level)
        assert search.should_stop(names[1], 1, 3 * level) == (trial == 1)
        assert search.study.trials[trial].intermediate_values == {1: 2 * level}
        if trial == 0:
            search.tell(names[0], "done", level)
            search.tell(names[1], "done", level)
    assert search.should_stop(names[0], 2, 100.0)  # its other seed stops with it
    search.tell(names[1], "pruned", None)
    assert states(search) == ["COMPLETE", "PRUNED"]


@pytest.mark.parametrize("option", ["tpe", "nsga2"])
def test_several_metrics_have_a_front(tmp_path: Path, option: str) -> None:
    def judge(values: Values) -> tuple[Status, Objective]:
        lr = math.log10(float(values["optim.lr"]))
        if lr > -2:
            return "nan", None
        return "done", [-((lr + 5) ** 2), (lr + 3) ** 2]

    search = make_search(
        tmp_path, option, LR, trials=40, metric=["eval/success", "tokens/used"],
        direction=["maximize", "minimize"],
    )  # fmt: skip
    play(search, judge)
    assert len(search.study.trials) == 40
    front = search.study.best_trials
    inside = [-5.05 <= math.log10(trial.params["optim.lr"]) <= -2.95 for trial in front]
    assert len(front) >= 8
    assert sum(inside) >= 0.8 * len(inside)
    report = search.report()
    assert report[1] == f"beaten by no other in eval/success and tokens/used: {len(front)}"
    assert len(report) == 2 + 2 * len(front)
