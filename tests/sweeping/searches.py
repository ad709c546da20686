"""Drive searches: the proposer alone, with a function in the place of cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from selfdistill_cli.analysis.ledger import Cell, Status
from selfdistill_cli.config.axes import read_space
from selfdistill_cli.config.catalog import config_dirs
from selfdistill_cli.config.checked import build
from selfdistill_cli.sweeping.naming import cell_name
from selfdistill_cli.sweeping.search import Search
from selfdistill_cli.sweeping.settings import SweepSettings

CONF = Path(__file__).parents[2] / "conf" / "sweep"
Values = Mapping[str, str]
Objective = float | list[float] | None
Judge = Callable[[Values], tuple[Status, Objective]]


def make_search(
    folder: Path,
    option: str,
    *words: str,
    known: Mapping[str, Cell] | None = None,
    **changed: object,
) -> Search:
    """A search over words, with some settings of the option changed."""
    container = {**yaml.safe_load((CONF / f"{option}.yaml").read_text()), **changed}
    settings: SweepSettings = build(container, SweepSettings, "sweep")
    space = read_space(words, config_dirs(None))
    settings.check(space)
    search = settings.build(space, known or {}, folder)
    assert isinstance(search, Search)
    return search


def play(search: Search, judge: Judge, most: int = 1000) -> list[Values]:
    """Run cells one after another until the search has no more; return their values."""
    seen: list[Values] = []
    while len(seen) < most and (planned := search.next()) is not None:
        name = cell_name(planned.values)
        search.named(name, planned)
        seen.append(planned.values)
        search.tell(name, *judge(planned.values))
    return seen
