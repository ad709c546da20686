"""Schedules, controllers and slow copies against the golden vectors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from golden_vectors import cases, cases_by_precision, check_case

from selfdistill_cli.losses.averaging import GateState, copy_, gate_update, half_life, lerp_
from selfdistill_cli.losses.schedules import (
    PidState,
    cosine,
    linear,
    pid_update,
    proportional_update,
    warmup_decay,
)

Case = dict[str, Any]
Weights = dict[str, torch.Tensor]


def _schedule(n: int, given: Case) -> float:
    if given["kind"] == "constant":
        return linear(n, given["value"], given["value"], 10)
    if given["kind"] == "warmup_decay":
        names = ("init", "peak", "end", "warmup", "decay", "decay_kind")
        return warmup_decay(n, *(given[name] for name in names))
    shape = {"linear": linear, "cosine": cosine}[given["kind"]]
    return shape(n, given["start"], given["end"], given["n_steps"])


@pytest.mark.parametrize("kind", ["constant", "linear", "cosine", "warmup_decay"])
def test_schedules(kind: str) -> None:
    for param in cases_by_precision("schedules", kind=kind):
        case, precision = param.values
        values = [_schedule(n, case["inputs"]) for n in case["inputs"]["steps"]]
        check_case({"values": values}, case, precision)
        if kind in ("linear", "cosine"):
            assert (values[0], values[-1]) == (case["inputs"]["start"], case["inputs"]["end"])


@pytest.mark.parametrize("case", cases("schedules", kind="pid"))
def test_pid_controller(case: Case) -> None:
    given = case["inputs"]
    settings = {key: given[key] for key in ("target", "kp", "ki", "kd", "beta_min", "beta_max")}
    state, trace = PidState(beta=given["beta0"]), []
    for kl, sync in zip(given["kl"], given["sync"], strict=True):
        state = pid_update(state, kl, bool(sync), **settings, integral_max=given["i_max"])
        read = state.derivative is not None
        trace.append({
            "error": state.previous_error if read else None, "integral": state.integral,
            "derivative": state.derivative, "beta": state.beta,
        })  # fmt: skip
    check_case({"trace": trace}, case, "float64")


@pytest.mark.parametrize("case", cases("schedules", kind="proportional"))
def test_proportional_controller(case: Case) -> None:
    given = case["inputs"]
    beta, trace = given["beta0"], []
    for kl in given["kl"]:
        beta = proportional_update(beta, kl, given["target"], given["n_steps"], given["horizon"])
        trace.append(beta)
    check_case({"beta": trace}, case, "float64")


def _weights(given: Case, int_keys: list[str], precision: str) -> Weights:
    """Floats in the precision, counters as integers."""
    dtypes = {
        name: torch.int64 if name in int_keys else getattr(torch, precision) for name in given
    }
    return {name: torch.tensor(given[name], dtype=dtypes[name]) for name in given}


class _Driver:
    """Calls the functions in the order in which a sync part does."""

    def __init__(self, given: Case, precision: str):
        self.given = given
        self.teacher = _weights(given["teacher0"], given["int_keys"], precision)
        self.gate = GateState(teacher_score=given["teacher_val0"] or 0.0)

    def update(self, n: int, student: Weights) -> dict[str, Any]:
        """Follow the student's weights at update n, counted from 1."""
        event = self._follow(n, student)
        if self.given["sync_every"] and n % self.given["sync_every"] == 0:
            copy_(self.teacher, student)
            event = "sync"
        row = {"event": event, "teacher": {name: x.tolist() for name, x in self.teacher.items()}}
        if self.given["mode"] == "gate":
            row |= {"streak": self.gate.streak, "teacher_val": self.gate.teacher_score}
        return row

    def _follow(self, n: int, student: Weights) -> str:
        given = self.given
        if given["mode"] == "gate":
            score = given["student_val"][n - 1]
            self.gate, copies = gate_update(self.gate, score, given["margin"], given["patience"])
        else:
            copies = n % given["every"] == 0
        if not copies:
            return "none"
        if given["mode"] == "ema":
            lerp_(self.teacher, student, given["decay"])
            return "ema"
        copy_(self.teacher, student)
        return "copy"


@pytest.mark.parametrize("mode", ["ema", "hard", "gate"])
def test_teacher_updates(mode: str) -> None:
    for param in cases_by_precision("teacher_update", mode=mode):
        case, precision = param.values
        given = case["inputs"]
        driver = _Driver(given, precision)
        constant = given.get("student_constant")
        students = [constant] * given["n_updates"] if constant else given["students"]
        trace = [
            driver.update(n, _weights(student, given["int_keys"], precision))
            for n, student in enumerate(students, 1)
        ]
        actual = {"teacher_last": trace[-1]["teacher"]} if constant else {"trace": trace}
        check_case(actual, case, precision)


@pytest.mark.parametrize("case", cases("teacher_update", mode="half_life"))
def test_half_life(case: Case) -> None:
    check_case({"updates": half_life(case["inputs"]["decay"])}, case, "float64")
