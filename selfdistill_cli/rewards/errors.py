"""What a reward may get wrong, what then happens, and the book that is kept of it."""

from __future__ import annotations

import json
import math
import numbers
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from selfdistill_cli.core.disk import writing
from selfdistill_cli.core.errors import RunError
from selfdistill_cli.core.types import Score, Trajectory

Kind = Literal["exception", "nan", "inf", "none", "wrong_length", "not_a_number"]
OnError = Literal["mask", "zero", "retry", "abort"]

LARGEST = 1e15
"""A number beyond this counts as infinite: its square would drown every running mean."""
MOST_LINES = 200
LONGEST_TEXT = 2000
"""Bounds of reward_errors.jsonl: lines in the file, characters of each text."""


class RewardError(RunError):
    """A reward failed and its settings say that the run stops."""


class Refused(Exception):
    """One thing that a reward gave, or raised, and that is no value."""

    def __init__(self, kind: Kind, found: str):
        super().__init__(f"{kind}: {found}")
        self.kind: Kind = kind
        self.found = found


@dataclass(frozen=True, kw_only=True)
class ErrorPolicy:
    """What happens when a component, or a whole reward, fails for a trajectory."""

    on_error: OnError
    """mask: no value; zero: the value 0; retry: ask again, then mask; abort: stop the run."""
    retries: int
    """How often `retry` asks again."""
    error_budget: int
    """Failures of a run that are endured; one more stops it."""
    key: str
    """Where `on_error` is set."""
    budget_key: str
    """Where `error_budget` is set."""


def read_number(value: Any) -> float:
    """Return a finite float; raises Refused for anything else. 0-d arrays are numbers."""
    if value is None:
        raise Refused("none", "None")
    if callable(getattr(value, "item", None)):
        try:
            value = value.item()
        except (ValueError, RuntimeError, TypeError):
            raise Refused("not_a_number", _shown(value)) from None
    if not isinstance(value, numbers.Real):
        raise Refused("not_a_number", _shown(value))
    try:
        number = float(value)
    except OverflowError:
        raise Refused("inf", "a number beyond all floats") from None
    if math.isnan(number):
        raise Refused("nan", "nan")
    if abs(number) > LARGEST:
        raise Refused("inf", f"{number}")
    return number


def read_score(value: Any) -> Score:
    """Return a Score of finite numbers; raises Refused. A total of None is legal: rejected."""
    if value is None:
        raise Refused("none", "None instead of a core.types.Score")
    if not isinstance(value, Score):
        raise Refused("not_a_number", f"{_shown(value)} instead of a core.types.Score")
    success = read_number(value.success)
    if not 0 <= success <= 1:
        raise Refused("not_a_number", f"success {success:g}, expected 0 to 1")
    total = None if value.total is None else read_number(value.total)
    parts = {name: read_number(part) for name, part in value.parts.items()}
    return replace(value, total=total, success=success, parts=parts)


def refusal(error: Exception) -> Refused:
    """An exception as what it is here; Refused stays itself."""
    if isinstance(error, Refused):
        return error
    return Refused("exception", f"{type(error).__name__}: {error}")


class ErrorBook:
    """Counts failures, saves the samples that caused them, and says when a run must stop."""

    def __init__(self) -> None:
        """An empty book that writes no file."""
        self.path: Path | None = None
        self.step = 0
        self.may_abort = True
        self.overdue: RewardError | None = None
        self.totals: Counter[str] = Counter()
        self._recent: Counter[tuple[str, Kind]] = Counter()

    def note(
        self, name: str, policy: ErrorPolicy, refused: Refused, trajectory: Trajectory | None
    ) -> None:
        """Count one failure and save its sample (None: a batch). Raises RewardError if due.

        An evaluation never stops a run; the error is kept and raised at the next training step.
        """
        self.totals[name] += 1
        self._recent[name, refused.kind] += 1
        task = "a batch" if trajectory is None else f"task {trajectory.task.id}"
        self._save(name, refused, trajectory)
        reason = _reason(policy, self.totals[name])
        if reason is None:
            return
        saved = "" if self.path is None else f" The sample is in {self.path}."
        error = RewardError(
            f"reward: {name} failed at step {self.step} for {task}: found {refused.found[:300]} "
            f"({refused.kind}), expected a finite number. {reason}.{saved} Mend it and give the "
            f"same command again, or add {policy.key}=mask (with 'resume.allow=[{policy.key}]')"
        )
        if self.may_abort:
            raise error
        self.overdue = error

    def metrics(self) -> dict[str, float]:
        """Failures since the last call: `reward/errors`, and one key per component and kind."""
        found = {"reward/errors": float(self._recent.total())}
        for (name, kind), count in sorted(self._recent.items()):
            found[f"reward/errors/{name}/{kind}"] = float(count)
        self._recent.clear()
        return found

    def state_dict(self) -> dict[str, int]:
        """Failures of the run by name, which the budgets are compared with."""
        return dict(self.totals)

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Restore what `state_dict` returned."""
        self.totals = Counter(state)
        self.overdue = None

    def _save(self, name: str, refused: Refused, trajectory: Trajectory | None) -> None:
        if self.path is None or _num_lines(self.path) >= MOST_LINES:
            return
        record: dict[str, Any] = {
            "step": self.step if self.may_abort else "evaluation",
            "component": name,
            "kind": refused.kind,
            "error": refused.found[:LONGEST_TEXT],
        }
        if trajectory is not None:
            record["task"] = trajectory.task.id
            record["sibling"] = trajectory.sibling
            record["text"] = "\n".join(turn.text for turn in trajectory.turns)[:LONGEST_TEXT]
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="ascii") as handle:
                handle.write(json.dumps(record) + "\n")


def _reason(policy: ErrorPolicy, count: int) -> str | None:
    if policy.on_error == "abort":
        return f"{policy.key}=abort stops the run"
    if count > policy.error_budget:
        return f"That is failure {count}, and {policy.budget_key} endures {policy.error_budget}"
    return None


def _num_lines(path: Path) -> int:
    if not path.is_file():
        return 0
    with path.open("rb") as handle:
        return sum(1 for _ in handle)


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # whatever a user's object does when it is shown
        text = "an object that cannot be shown"
    return f"{text[:200]} ({type(value).__name__})"
