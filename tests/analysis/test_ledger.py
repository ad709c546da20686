"""The ledger keeps every whole event, whatever a crash left at its end."""

from __future__ import annotations

import pytest

from selfdistill_cli.analysis.ledger import Ledger
from selfdistill_cli.core.errors import DataError

PLAN = {
    "axes": {"seed": ["1"]}, "metric": "loss", "objective": "final", "direction": "minimize",
    "words": ["seed=1,2"], "folder": "/", "root": "runs", "config_dir": None,
    "config_name": "train", "identity": {},
}  # fmt: skip


def test_later_events_overwrite_fields_of_earlier_ones(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.append("b", values={"seed": "1"}, status="pending")
    ledger.append("a", values={"seed": "2"}, status="pending")
    ledger.append("b", status="done", objective=0.5, attempt=1)
    cells = ledger.cells()
    assert list(cells) == ["b", "a"]
    assert (cells["b"].status, cells["b"].objective, cells["b"].values) == (
        "done", 0.5, {"seed": "1"},
    )  # fmt: skip
    assert cells["a"].status == "pending"


@pytest.mark.parametrize("torn", [b'{"name": "a", "sta', b"{", b'{"name": "a"'])
def test_a_torn_line_is_left_out_and_the_next_event_stands_alone(tmp_path, torn):
    ledger = Ledger(tmp_path)
    ledger.append("a", status="running")
    with ledger.path.open("ab") as file:
        file.write(torn)
    assert ledger.cells()["a"].status == "running"
    ledger.append("a", status="done")
    assert ledger.cells()["a"].status == "done"


def test_a_folder_without_a_plan_is_named(tmp_path):
    with pytest.raises(DataError, match=r"sweep\.json cannot be read.*directory of a sweep"):
        Ledger(tmp_path).plan()
    ledger = Ledger(tmp_path / "made")
    ledger.write_plan(PLAN)
    assert ledger.plan() == PLAN


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"axes": [1]}, r"axes: got \[1\], expected lists of values by key"),
        ({"axes": {"seed": [1]}}, "axes: got"),
        ({"metric": 3}, "metric: got 3, expected a key or a list of keys"),
        ({"words": None}, "words: got null"),
        ({"folder": 1}, "folder: got 1"),
    ],
)
def test_a_damaged_plan_is_told_by_its_key(tmp_path, changed, said):
    ledger = Ledger(tmp_path)
    ledger.write_plan({**PLAN, **changed})
    with pytest.raises(DataError, match=f"sweep\\.json: {said}.*put a copy of it back"):
        ledger.plan()
    ledger.write_plan({key: value for key, value in PLAN.items() if key not in changed})
    with pytest.raises(DataError, match="got nothing"):
        ledger.plan()


@pytest.mark.parametrize(
    "damaged",
    [b"\xff\xfe\x00", b'{"name": "a", "values": [1]}', b'{"name": "a", "objective": "b"}',
     b'{"name": "a", "attempt": "c"}', b'{"name": "a", "status": ["done"]}', b'{"name": 1}'],
)  # fmt: skip
def test_an_event_that_no_sweep_writes_is_left_out(tmp_path, damaged):
    ledger = Ledger(tmp_path)
    ledger.append("a", status="done", objective=[0.5, None], attempt=1, pid=7)
    before = ledger.cells()
    with ledger.path.open("ab") as file:
        file.write(damaged + b"\n")
    assert ledger.cells() == before


def test_a_moved_folder_has_its_paths_where_it_is(tmp_path):
    before = tmp_path / "before"
    before.mkdir()
    ledger = Ledger(before)
    for name, log in (("a", before / "logs/a.log"), ("b", tmp_path / "elsewhere.out")):
        ledger.append(name, run=str(before / name), log=str(log))
    assert ledger.cells()["a"].run == str(before / "a")
    moved = before.rename(tmp_path / "after")
    cells = Ledger(moved).cells()
    assert (cells["a"].run, cells["a"].log) == (str(moved / "a"), str(moved / "logs/a.log"))
    assert cells["b"].log == str(tmp_path / "elsewhere.out")
