"""Axes of a sweep: read, checked before anything starts, and made into cells as by Hydra."""

from __future__ import annotations

import pytest

from selfdistill_cli.config import catalog
from selfdistill_cli.config.axes import Space, read_space
from selfdistill_cli.config.cells import Cells
from selfdistill_cli.config.compose import compose
from selfdistill_cli.core.errors import ConfigError


def space(*words: str) -> Space:
    return read_space(words, catalog.config_dirs(None))


def cells(*words: str) -> Cells:
    return Cells(space(*words), None, "train")


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("seed=0,1,1", ("0", "1")),
        ("seed=range(0,6,2)", ("0", "2", "4")),
        ("optim.lr=1e-3,0.5", ("0.001", "0.5")),
        ("method=gear,grpo", ("gear", "grpo")),
        ("method=glob(gear_p*)", ("gear_pairwise", "gear_paper", "gear_plateau", "gear_ppo")),
        ("eval.hints=[answer],[answer,feedback],[]", ("[answer]", "[answer,feedback]", "[]")),
        ("env.data='a,b.jsonl',\"c d\",null", ("'a,b.jsonl'", '"c d"', "null")),
        ("env.data='ключ','δ'", ("'ключ'", "'δ'")),
    ],
)
def test_axes(word: str, values: tuple[str, ...]) -> None:
    (axis,) = space(word).axes
    assert axis.values == values


def test_intervals_are_kept_for_a_search() -> None:
    found = space("seed=0,1", "optim.lr=tag(log,interval(1e-5,1e-3))")
    (interval,) = found.intervals
    assert (interval.low, interval.high, interval.tags) == (1e-5, 1e-3, {"log"})
    assert [axis.key for axis in found.axes] == ["seed"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["methd=gear,grpo"], "did you mean 'method'"),
        (["method=gear,grop"], "there is no option 'grop'; did you mean 'grpo'"),
        (["seed=0,1", "optim.lrr=1"], "optim has no setting 'lrr'; did you mean 'lr'"),
        (["seed=0,1", "optim.lr=1e-3,fast"], r"optim.lr: got 'fast' \(str\), expected a number"),
        (["seed=0,x,y"], "seed: got 'x'.*\nseed: got 'y'"),
        (["seed=0"], "no key has several values"),
        (["seed=range(3,3)"], "has no values"),
        (["run.name=a", "seed=0,1"], "run.name: got 'a', which would be the name of every run"),
        (["sweep.name=a,b"], "sweep.name: got 'a,b', expected one value"),
    ],
)
def test_mistakes_are_told_before_anything_starts(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        cells(*words).check()


def test_a_key_that_only_some_options_have_is_no_mistake() -> None:
    words = ("method=grpo,gear", "method.credit.temperature=0.5,1", "seed=0")
    some = cells(*words)
    some.check()
    values = {"method": "gear", "method.credit.temperature": "0.5"}
    assert some.make(values).container["method"]["credit"]["temperature"] == 0.5
    with pytest.raises(ConfigError, match=r"method\.credit has no setting 'temperature'"):
        some.make({**values, "method": "grpo"})


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["seed=0,1", "optim.lr=1e-3"], {"seed": "1"}),
        (["method=gear,grpo", "seed=3"], {"method": "grpo"}),
        (["rollout.max_new_tokens=32,64", "method=dr_grpo"], {"rollout.max_new_tokens": "32"}),
        (["experiment=quick,agent_math", "method=sft"], {"experiment": "agent_math"}),
        (["method=gear", "method/credit=uniform,token_log_ratio"], {"method/credit": "uniform"}),
        (["eval.hints=[],[answer]", "~method.terms.distill", "method=opsd", "seed=0"],
         {"eval.hints": "[answer]"}),
        (["+method.terms.policy_gradient={coefficient: 0.5},{coefficient: 2}", "method=grpo"],
         {"+method.terms.policy_gradient": "{coefficient:2}"}),
    ],
)  # fmt: skip
def test_a_cell_is_what_its_own_command_composes(words: list[str], values: dict[str, str]) -> None:
    some = cells(*words)
    swept = list(values)
    fixed = [word for word in words if not any(word.startswith(f"{key}=") for key in swept)]
    whole = compose([*fixed, *(f"{key}={text}" for key, text in values.items())])
    made = some.make(values).container
    expected = {**whole.container, "run": {**whole.container["run"], "name": None}}
    assert made == expected
