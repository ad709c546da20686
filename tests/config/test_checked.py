"""Checked building: each kind of mistake has its own helpful message."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from selfdistill_cli.config.checked import build, plain
from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.core.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Ramp(Settings):
    """A nested node."""

    start: float
    """First value."""


@dataclass(frozen=True, kw_only=True)
class Credit(Settings):
    """A part."""

    temperature: float
    """Divides the gap."""
    form: Literal["exp", "exp_sign"]
    """Map from gap to weight."""
    ramp: float | Ramp
    """Share in use."""


@dataclass(frozen=True, kw_only=True)
class Recipe(Settings):
    """A whole."""

    size: int
    """How many."""
    flag: bool
    """On or off."""
    name: str | None
    """What it is called."""
    bounds: tuple[float, float]
    """Low and high."""
    hints: list[Literal["answer", "sibling"]]
    """In this order."""
    credit: Settings
    """Any part."""
    ramps: Mapping[str, Ramp]
    """By name."""
    extra: Ramp | None
    """Or nothing."""

    def __post_init__(self) -> None:
        if self.size == 13:
            raise ValueError("size 13 is unlucky")


def container(**changes: Any) -> dict[str, Any]:
    whole = {
        "size": 3,
        "flag": True,
        "name": None,
        "bounds": [0, 1.5],
        "hints": ["answer"],
        "credit": {
            "_target_": f"{__name__}.Credit",
            "temperature": 1,
            "form": "exp",
            "ramp": {"_target_": f"{__name__}.Ramp", "start": 0},
        },
        "ramps": {"a": {"start": 0.5}},
        "extra": None,
    }
    return {**whole, **changes}


def credit(**changes: Any) -> dict[str, Any]:
    return container(credit={**container()["credit"], **changes})


def message(wrong: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        build(wrong, Recipe)
    return str(caught.value)


def test_a_correct_container_becomes_settings() -> None:
    built = build(container(extra={"start": 2}), Recipe)
    assert built.bounds == (0.0, 1.5)
    assert built.credit == Credit(temperature=1.0, form="exp", ramp=Ramp(start=0.0))
    assert isinstance(built.credit.temperature, float)
    assert built.ramps == {"a": Ramp(start=0.5)}
    assert built.extra == Ramp(start=2.0)
    assert build(credit(ramp=0.5), Recipe).credit.ramp == 0.5


def test_plain_settings_are_built_again_unchanged() -> None:
    built = build(container(), Recipe)
    assert build(plain(built), Recipe) == built


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (
            credit(temprature=3),
            "credit.temprature: Credit has no such setting; did you mean 'temperature'? "
            "(known: temperature, form, ramp)",
        ),
        (container(size="abc"), "size: got 'abc' (str), expected a whole number (int)"),
        (container(size=True), "size: got True (bool), expected a whole number (int)"),
        (container(size=1.0), "size: got 1.0 (float), expected a whole number (int)"),
        (container(size="3"), "size: got '3' (str), expected a whole number (int)"),
        (container(flag=1), "flag: got 1 (int), expected true or false (bool)"),
        (container(flag="yes"), "flag: got 'yes' (str), expected true or false (bool)"),
        (container(name=5), "name: got 5 (int), expected text (str) or null"),
        (
            credit(temperature=True),
            "credit.temperature: got True (bool), expected a number (float)",
        ),
        (
            credit(form="exp_sgn"),
            "credit.form: got 'exp_sgn' (str), expected one of 'exp', 'exp_sign'; "
            "did you mean 'exp_sign'?",
        ),
        (
            credit(ramp="fast"),
            "credit.ramp: got 'fast' (str), expected a number (float) or a mapping with the "
            "settings of Ramp",
        ),
        (
            container(hints=["answer", "siblin"]),
            "hints[1]: got 'siblin' (str), expected one of 'answer', 'sibling'; "
            "did you mean 'sibling'?",
        ),
        (container(hints="answer"), "hints: got 'answer' (str), expected a list of one of"),
        (container(bounds=[1.0]), "bounds: got the list [1.0], expected a list of a number"),
        (container(ramps={"a": {"strat": 1, "start": 1}}), "ramps.a.strat: Ramp has no such"),
        (container(ramps=[1]), "ramps: got the list [1], expected a mapping of names to"),
        (
            container(extra=[]),
            "extra: got the list [], expected a mapping with the settings of Ramp",
        ),
        (container(extra=7), "extra: got 7 (int), expected a mapping with the settings of Ramp"),
        (
            container(extra={"start": "???"}),
            "extra.start: has no default; type extra.start=VALUE, expected a number (float). "
            "Its meaning: First value.",
        ),
        (
            container(extra={}),
            "extra.start: is missing; Ramp expects a number (float). Its meaning: First value.",
        ),
        (
            container(credit={"temperature": 1}),
            "credit: has no _target_; expected the dotted path of the settings class to fill",
        ),
        (container(credit=3), "credit: got 3 (int), expected a mapping with a _target_"),
        (container(size=13), "the configuration: size 13 is unlucky"),
    ],
)
def test_a_mistake_is_named_with_what_was_expected(wrong: dict[str, Any], expected: str) -> None:
    assert message(wrong).startswith(expected)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (
            f"{__name__}.Credti",
            f"credit._target_: module {__name__} has no class 'Credti'; did you mean 'Credit'? "
            "(settings classes there: Ramp, Credit, Recipe)",
        ),
        (
            "nowhere.settings.Credit",
            "credit._target_: there is no module 'nowhere' (of nowhere.settings); a module of your "
            "own is found in the current folder and beside the folder given as --config-dir",
        ),
        (
            "decimal.Decimal",
            "credit._target_: decimal.Decimal does not fit here; expected a dataclass that extends "
            "selfdistill_cli.core.settings.Settings",
        ),
        ("Credit", "credit._target_: got 'Credit' (str), expected the dotted path of a settings"),
        (None, "credit._target_: got null, expected the dotted path of a settings class"),
    ],
)
def test_a_wrong_target_is_explained(target: Any, expected: str) -> None:
    assert message(credit(_target_=target)).startswith(expected)


def test_a_broken_module_of_the_user_is_told_apart_from_a_missing_one(
    tmp_path, monkeypatch
) -> None:
    (tmp_path / "broken_part.py").write_text("1 / 0\n")
    (tmp_path / "needy_part.py").write_text("import not_installed_anywhere\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert message(credit(_target_="broken_part.Credit")).startswith(
        "credit._target_: importing broken_part failed: ZeroDivisionError: division by zero"
    )
    assert message(credit(_target_="needy_part.Credit")).startswith(
        "credit._target_: importing needy_part failed: it imports 'not_installed_anywhere', which"
    )


def test_a_target_must_fit_the_field() -> None:
    wrong = container(extra={"_target_": f"{__name__}.Credit", "start": 1})
    assert f"extends {__name__}.Ramp" in message(wrong)


def test_all_mistakes_are_reported_together() -> None:
    wrong = credit(temprature=3, form="x")
    lines = message({**wrong, "size": "abc", "typo": 1}).splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "typo",
        "size",
        "credit.temprature",
        "credit.form",
    ]
