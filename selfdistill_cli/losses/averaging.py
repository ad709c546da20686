"""How a slow copy of the weights follows the student: averages, copies and a gate.

Copies are changed in place, entry by entry, matched by name. Keep a slow copy in float32 or wider:
in bfloat16 the small steps of an average round to nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch


@torch.no_grad()
def lerp_(
    slow: Mapping[str, torch.Tensor], student: Mapping[str, torch.Tensor], decay: float
) -> None:
    """slow = decay * slow + (1 - decay) * student for floats; integers are copied.

    `decay` is the share of the slow copy that is kept: 1 freezes it, 0 copies. Computed in the
    slow copy's dtype and on its device. Raises ValueError, before anything is changed, if names
    or shapes differ.
    """
    _check_match(slow, student)
    for name, kept in slow.items():
        if kept.is_floating_point():
            kept.lerp_(student[name].to(kept), 1.0 - decay)
        else:
            kept.copy_(student[name])


@torch.no_grad()
def copy_(slow: Mapping[str, torch.Tensor], student: Mapping[str, torch.Tensor]) -> None:
    """Copy every entry; raises ValueError, before anything is changed, as `lerp_` does."""
    _check_match(slow, student)
    for name, kept in slow.items():
        kept.copy_(student[name])


def _check_match(slow: Mapping[str, torch.Tensor], student: Mapping[str, torch.Tensor]) -> None:
    missing, extra = sorted(slow.keys() - student.keys()), sorted(student.keys() - slow.keys())
    if missing or extra:
        raise ValueError(
            f"the slow copy and the student have different entries: the student lacks {missing}, "
            f"the slow copy lacks {extra}. Make the copy from the same policy and adapters."
        )
    shapes = [
        f"{name}: {list(kept.shape)} and {list(student[name].shape)}"
        for name, kept in slow.items()
        if kept.shape != student[name].shape
    ]
    if shapes:
        raise ValueError(
            f"the slow copy and the student have entries of different shapes: {'; '.join(shapes)}. "
            "A teacher of another size cannot follow the student; freeze it."
        )


def half_life(decay: float) -> float:
    """Updates after which half of the slow copy's start is left; inf at 1, 0 at 0."""
    if decay <= 0.0:
        return 0.0
    return math.log(0.5) / math.log(decay) if decay < 1.0 else math.inf


@dataclass(frozen=True, kw_only=True)
class GateState:
    """What the gate remembers between validations."""

    teacher_score: float
    """Score that the slow copy had when it was last copied."""
    streak: int = 0
    """Validations in a row that the student has won."""


def gate_update(
    state: GateState, student_score: float | None, margin: float, patience: int
) -> tuple[GateState, bool]:
    """Return (next state, whether to copy the student now).

    The student wins a validation if its score is finite and above teacher_score + margin; after
    `patience` wins in a row it is copied and its score becomes the teacher's. Without a score
    (None) nothing happens.
    """
    if student_score is None:
        return state, False
    is_win = math.isfinite(student_score) and student_score > state.teacher_score + margin
    streak = state.streak + 1 if is_win else 0
    if is_win and streak >= patience:
        return GateState(teacher_score=student_score), True
    return GateState(teacher_score=state.teacher_score, streak=streak), False
