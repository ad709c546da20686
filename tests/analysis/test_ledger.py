"""The ledger keeps every whole event, whatever a crash left at its end."""

from __future__ import annotations

import pytest

from selfdistill_cli.analysis.ledger import Ledger
from selfdistill_cli.core.errors import DataError


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
    ledger.write_plan({"axes": {"seed": ["1"]}})
    assert ledger.plan() == {"axes": {"seed": ["1"]}}
