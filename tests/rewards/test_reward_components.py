"""Golden vectors of the reward arithmetic, and the unit-test reward."""

from __future__ import annotations

from typing import Any

import pytest
from golden_vectors import cases, check_case

from selfdistill_cli.core.types import Stop, Task, Trajectory
from selfdistill_cli.rewards.components import (
    Component,
    RunningMoments,
    composite,
    dense_code_reward,
    overlong_penalty,
)
from selfdistill_cli.rewards.settings import UnitTestsSettings


def _composite(inputs: dict[str, Any]) -> dict[str, Any]:
    components = [
        Component(
            name=spec["name"],
            weight=spec["weight"],
            scale=spec["scale"],
            clip=None if spec["clip"] is None else (spec["clip"][0], spec["clip"][1]),
            normalize=bool(spec["normalize"]),
        )
        for spec in inputs["spec"]
    ]
    moments = {component.name: RunningMoments() for component in components}
    totals, parts = [], []
    for sample in inputs["samples"]:
        total, weighted, moments = composite(sample, components, moments)
        totals.append(total)
        parts.append(weighted)
    state = {name: {"count": m.count, "mean": m.mean, "m2": m.m2} for name, m in moments.items()}
    return {"totals": totals, "weighted_parts": parts, "normalizer_state": state}


def _code(inputs: dict[str, Any]) -> dict[str, Any]:
    names = ("compile_bonus", "per_test", "max_tests", "length_coef", "length_cap")
    settings = {name: inputs[name] for name in names}
    rewards = [
        dense_code_reward(
            compiled=bool(item["compiled"]),
            passed=item["passed"],
            length=item["length"],
            **settings,
        )
        for item in inputs["items"]
    ]
    return {"rewards": rewards}


def _overlong(inputs: dict[str, Any]) -> dict[str, Any]:
    limits = inputs["max_len"], inputs["cache_len"]
    return {"penalty": [overlong_penalty(length, *limits) for length in inputs["lengths"]]}


OPERATIONS = {"composite": _composite, "code": _code, "overlong": _overlong}


@pytest.mark.parametrize("case", cases("rewards"))
def test_golden(case: dict[str, Any]) -> None:
    check_case(OPERATIONS[case["inputs"]["op"]](case["inputs"]), case, "float64")


def _trajectory(**outcome: Any) -> Trajectory:
    task = Task(id="t", messages=())
    return Trajectory(
        task=task, sibling=0, turns=(), stop=Stop.DONE, outcome=outcome, policy_version=0
    )


@pytest.mark.parametrize(
    ("mode", "passed", "total", "success"),
    [
        ("fraction", 3, 0.75, 0.0),
        ("fraction", 4, 1.0, 1.0),
        ("fraction", 0, 0.0, 0.0),
        ("all_or_nothing", 3, 0.0, 0.0),
        ("all_or_nothing", 4, 1.0, 1.0),
    ],
)
def test_unit_tests_reward(mode: Any, passed: int, total: float, success: float) -> None:
    reward = UnitTestsSettings(mode=mode).build()
    score = reward.score(_trajectory(passed=passed, total=4, compiled=True))
    assert (score.total, score.success) == (total, success)
    assert score.parts == {"tests": passed / 4, "compiled": 1.0}


def test_an_outcome_without_tests_rejects_the_trajectory() -> None:
    score = UnitTestsSettings(mode="fraction").build().score(_trajectory())
    assert score.total is None
    assert score.missing == ("tests", "compiled")
