"""The report of a sweep: its numbers worked out by hand, its files, and sweeps that went wrong."""

from __future__ import annotations

import base64
import csv
import random
import re

import numpy as np
import pytest

from selfdistill_cli.analysis.importance import importance
from selfdistill_cli.analysis.ledger import Ledger
from selfdistill_cli.analysis.sweep_report import report
from selfdistill_cli.analysis.sweep_results import read_sweep
from selfdistill_cli.analysis.sweep_tables import notes
from selfdistill_cli.core.errors import DataError, UserError


def write_sweep(folder, cells, **plan):
    """A folder as a sweep leaves it; `cells` are (values, objective, fields)."""
    folder.mkdir()
    ledger = Ledger(folder)
    axes: dict[str, list[str]] = {}
    for values, _, _ in cells:
        for key, value in values.items():
            axes.setdefault(key, []).append(value)
    unique = {key: list(dict.fromkeys(values)) for key, values in axes.items()}
    shown = {"metric": "eval/success", "direction": "maximize", "objective": "final"}
    typed = {"words": [], "folder": "/", "root": "runs", "config_name": "train", "identity": {}}
    ledger.write_plan({"axes": unique, **typed, **shown, **plan})
    for number, (values, objective, fields) in enumerate(cells):
        name = f"cell_{number}"
        ledger.append(name, values=values, status="running", attempt=1)
        ledger.append(name, **{"status": "done", "objective": objective, **fields})
    return folder


def grid(folder, **plan):
    """Two methods, two rates, two seeds; the means of the points are 0.3, 0.5, 0.6 and 1.0."""
    means = {("grpo", "1e-4"): 0.3, ("grpo", "1e-2"): 0.5, ("gear", "1e-4"): 0.6}
    means["gear", "1e-2"] = 1.0
    cells = [
        ({"method": method, "optim.lr": rate, "seed": str(seed)}, mean + shift, {})
        for (method, rate), mean in means.items()
        for seed, shift in enumerate((-0.1, 0.1))
    ]
    return write_sweep(folder, cells, **plan)


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_seeds_are_joined_and_points_ranked(tmp_path):
    files = report(grid(tmp_path / "s"), tmp_path / "out")
    names = {"report.html", "points.csv", "cells.csv", "parallel.png", "axes.png"}
    assert {path.name for path in files} == names
    assert all(path.parent == tmp_path / "out" for path in files)
    found = rows(tmp_path / "out/points.csv")
    order = [(row["method"], row["optim.lr"]) for row in found]
    assert order == [("gear", "1e-2"), ("gear", "1e-4"), ("grpo", "1e-2"), ("grpo", "1e-4")]
    assert [float(row["eval/success"]) for row in found] == pytest.approx([1.0, 0.6, 0.5, 0.3])
    assert [row["seeds"] for row in found] == ["2"] * 4
    # Two seeds are drawn with replacement: the ends of the interval are the seeds themselves.
    assert float(found[0]["eval/success_low"]) == pytest.approx(0.9)
    assert float(found[0]["eval/success_high"]) == pytest.approx(1.1)
    assert len(rows(tmp_path / "out/cells.csv")) == 8


def test_importance_is_the_share_worked_out_by_hand(tmp_path):
    """Means 0.3 0.5 0.6 1.0, in all 0.6; squares around it 0.09 + 0.01 + 0 + 0.16 = 0.26.

    method: 0.4 and 0.8, between 4 * 0.2^2 = 0.16, share 0.16/0.26; within 0.10, adjusted
    1 - (0.10/2) / (0.26/3). optim.lr: 0.45 and 0.75, between 4 * 0.15^2 = 0.09, within 0.17.
    """
    results = read_sweep(grid(tmp_path / "s"))
    method, rate = (importance(axis, results.ranked, 0) for axis in results.axes)
    assert (method.key, rate.key) == ("method", "optim.lr")
    assert method.share == pytest.approx(0.16 / 0.26)
    assert method.adjusted == pytest.approx(1 - (0.10 / 2) / (0.26 / 3))
    assert rate.share == pytest.approx(0.09 / 0.26)
    assert rate.adjusted == pytest.approx(1 - (0.17 / 2) / (0.26 / 3))
    assert "importance is taken over 4 points" in " ".join(notes(results))


def test_an_axis_of_drawn_numbers_is_cut_into_parts_and_noise_counts_for_nothing(tmp_path):
    """Every value occurs once: compared value by value, each axis would account for all."""
    generator = random.Random(1)
    cells = []
    for _ in range(80):
        rate, noise = 10 ** generator.uniform(-5, -2), generator.random()
        values = {"optim.lr": repr(rate), "noise": repr(noise)}
        cells.append((values, np.log10(rate) + 0.1 * generator.gauss(0, 1), {}))
    results = read_sweep(write_sweep(tmp_path / "s", cells))
    assert [axis.key for axis in results.axes] == ["optim.lr", "noise"]
    assert [axis.numeric for axis in results.axes] == [True, True]
    assert results.axes[0].log
    rate, noise = (importance(axis, results.ranked, 0) for axis in results.axes)
    assert (rate.levels, noise.levels) == (4, 4)
    assert rate.adjusted is not None
    assert noise.adjusted is not None
    assert rate.adjusted > 0.85
    assert noise.adjusted < 0.15


def test_cells_without_numbers_are_told_and_left_out(tmp_path):
    cells = [
        ({"method": "gear", "seed": "0"}, 0.5, {}),
        ({"method": "gear", "seed": "1"}, None, {"status": "failed", "error": "<b>bad</b>\nmore"}),
        ({"method": "grpo", "seed": "0"}, float("nan"), {"status": "nan"}),
        ({"method": "ppo", "seed": "0"}, 0.9, {"status": "pruned"}),
        ({"method": "sft", "seed": "0"}, None, {"status": "pending"}),
    ]
    folder = write_sweep(tmp_path / "s", cells)
    files = report(folder, None)
    assert files[0] == folder / "report/report.html"
    found = rows(folder / "report/points.csv")
    assert [(row["method"], row["seeds"], row["missing"]) for row in found] == [
        ("gear", "1", "1"), ("grpo", "0", "1"), ("ppo", "0", "1"), ("sft", "0", "1"),
    ]  # fmt: skip
    assert found[0]["eval/success_low"] == ""
    page = files[0].read_text()
    assert "1 pending, 1 done, 1 failed, 1 nan, 1 pruned" in page
    assert "&lt;b&gt;bad&lt;/b&gt;" in page
    assert "more" not in re.findall(r"<td>[^<]*bad[^<]*", page)[0]
    assert "1 of 1 points have fewer than 5 seeds" in page


@pytest.mark.parametrize(
    "cells",
    [
        pytest.param([], id="no cell"),
        pytest.param([({"seed": "0"}, 0.5, {}), ({"seed": "1"}, 0.7, {})], id="seeds alone"),
        pytest.param([({"method": "gear"}, 0.5, {})], id="one cell"),
        pytest.param([({"optim.lr": "1e-4"}, None, {"status": "failed"})], id="nothing ended"),
        pytest.param([({"a": "true"}, 0.5, {}), ({"a": "true", "b": "1"}, 0.5, {})], id="equal"),
        pytest.param([({"a": str(i)}, float(i), {}) for i in range(30)], id="many values"),
    ],
)
def test_small_and_odd_sweeps_have_a_report(tmp_path, cells):
    files = report(write_sweep(tmp_path / "s", cells), None)
    page = files[0].read_text()
    pictures = [path for path in files if path.suffix == ".png"]
    inside = re.findall(r"data:image/png;base64,([^\"]+)", page)
    assert [base64.b64decode(text) for text in inside] == [p.read_bytes() for p in pictures]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)
    if len(cells) == 30:
        assert "<td>0 … 7</td><td>8</td><td>3.5</td><td>7</td>" in page
    assert not re.search(r"(src|href)=\"(?!data:)", page), "one file, nothing from elsewhere"


def test_several_objectives_are_ranked_by_fronts(tmp_path):
    values = {"a": [0.9, 2.0], "b": [0.5, 1.0], "c": [0.8, 3.0], "d": [0.4, 1.5], "e": None}
    cells = [({"x": name}, objective, {}) for name, objective in values.items()]
    folder = write_sweep(
        tmp_path / "s", cells,
        metric=["eval/success", "time/step_s"], direction=["maximize", "minimize"],
    )  # fmt: skip
    results = read_sweep(folder)
    assert [(p.values["x"], p.front) for p in results.points] == [
        ("a", 1), ("b", 1), ("c", 2), ("d", 2), ("e", 0),
    ]  # fmt: skip
    assert len(report(folder, None)) == 5


def test_less_may_be_better_and_the_searchs_own_importance_is_shown(tmp_path):
    plan = {"direction": "minimize", "importance": {"method": 0.75}}
    folder = grid(tmp_path / "s", **plan)
    results = read_sweep(folder)
    assert results.ranked[0].means[0] == pytest.approx(0.3)
    page = report(folder, None)[0].read_text()
    assert "less is better" in page
    assert "<td>0.75</td>" in page


def test_what_is_no_sweep_and_what_cannot_be_written_is_told(tmp_path):
    with pytest.raises(DataError, match="expected the directory of a sweep"):
        report(tmp_path, None)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="expected a folder that can be made"):
        report(grid(tmp_path / "s"), tmp_path / "file")
