"""What a search refuses, and how it says so."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from searches import make_search, play

from selfdistill_cli.core.errors import ConfigError, DataError
from selfdistill_cli.sweeping.journal import JOURNAL

LR = "optim.lr=tag(log,interval(1e-6,1e-1))"


def test_a_damaged_journal_is_named_with_the_remedy(tmp_path: Path) -> None:
    search = make_search(tmp_path, "tpe", LR, trials=3)
    play(search, lambda values: ("done", 0.5))
    path = tmp_path / JOURNAL
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:4], "damaged\n", *lines[4:]]))
    with pytest.raises(DataError, match=r"optuna\.journal cannot be read.*delete it"):
        make_search(tmp_path, "tpe", LR, trials=3, known={})


def test_one_study_has_one_goal(tmp_path: Path) -> None:
    make_search(tmp_path, "tpe", LR)
    with pytest.raises(ConfigError, match=r"sweep\.direction: got minimize, but the search in"):
        make_search(tmp_path, "tpe", LR, direction="minimize")


@pytest.mark.parametrize(
    ("words", "changed", "message"),
    [
        (["optim.lr=tag(lgo,interval(1,2))"], {}, r"no tag 'lgo'; did you mean 'log'"),
        (["optim.lr=tag(log,interval(0,2))"], {}, "optim.lr: got tag.*expected numbers above 0"),
        (["optim.lr=interval(2,1)"], {}, "optim.lr: got interval.*smaller number first"),
        (["optim.lr=tag(log,choice(1,2))"], {}, "optim.lr: the tag log is for an interval"),
        (["optim.lr=tag(log,range(1,9,2))"], {}, "without gaps"),
        (["seed=0,1"], {}, "nothing is searched: seed is averaged over"),
        (["seed=interval(0,1)"], {}, "seed: an interval cannot be averaged over"),
        ([LR], {"averaged": ["optim.l"]}, "'optim.l' is not swept; did you mean 'optim.lr'"),
        ([LR], {"trials": 0}, "sweep.trials: got 0, expected a number from 1"),
        ([LR], {"pruner": "mediam"}, "did you mean 'median'"),
        ([LR], {"metric": ["a", "b"]}, "sweep.direction: .*a list of 2, one for each"),
        ([LR], {"metric": ["a", "a"], "direction": ["minimize"] * 2}, "several different ones"),
        ([LR], {"direction": ["minimize"]}, "sweep.metric: .*a list of several"),
        (
            [LR],
            {"metric": ["a", "b"], "direction": ["minimize"] * 2, "pruner": "median"},
            "sweep.pruner: got 'median' with 2 metrics, expected none",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_searched_is_refused(
    tmp_path: Path, words: list[str], changed: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_search(tmp_path, "tpe", *words, **changed)
    assert not list(tmp_path.iterdir())


def test_without_optuna_the_remedy_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "optuna"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "optuna", None)  # what Python takes for not installed
    with pytest.raises(ConfigError, match=r'sweep: cannot import optuna.*install "optuna>=4'):
        make_search(tmp_path, "tpe", LR)
