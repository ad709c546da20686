"""From how a cell's process ended to what became of the cell."""

from __future__ import annotations

import math
import signal
from pathlib import Path
from typing import Literal

from selfdistill_cli.analysis.ledger import Status
from selfdistill_cli.core.errors import Diverged, Preempted
from selfdistill_cli.sweeping.processes import Ended
from selfdistill_cli.sweeping.readings import error_of

Reason = Literal["preempted", "cancelled", "pruned"]
"""What a cell becomes that was asked to stop, by why it was asked."""
STOPPED = (Preempted.exit_code, -signal.SIGTERM, -signal.SIGKILL, -signal.SIGUSR2)
NOT_FINITE = "the objective is not finite"
LINES = 6
"""Last lines of standard error that stand for an error without a message of its own."""


def outcome_of(
    ended: Ended, reason: Reason | None, run: Path, objective: float | list[float] | None
) -> tuple[Status, str | None]:
    """Return the status of a cell whose attempt ended, and its error.

    `reason` is why the sweep asked it to stop, None if it did not.
    """
    if ended.code == 0:
        return ("done", None) if finite(objective) else ("nan", NOT_FINITE)
    if ended.code == Preempted.exit_code or (ended.asked and ended.code in STOPPED):
        return reason or "preempted", None
    told = error_of(run)
    kind = None if told is None else told["kind"]
    return "nan" if kind == Diverged.__name__ else "failed", _message(ended, told)


def finite(objective: float | list[float] | None) -> bool:
    """Whether each of its numbers is; True without any."""
    values = objective if isinstance(objective, list) else [objective]
    return all(value is None or math.isfinite(value) for value in values)


def _message(ended: Ended, told: object) -> str:
    if isinstance(told, dict):
        return str(told["message"])
    lines = [line for line in ended.said.splitlines() if line.strip()][-LINES:]
    said = "\n".join(lines).removeprefix("error: ").removeprefix("the run failed: ")
    if ended.code < 0:
        return f"killed by signal {-ended.code}{_name(-ended.code)}" + (f"; {said}" if said else "")
    return said or f"ended with exit code {ended.code} and said nothing"


def _name(number: int) -> str:
    try:
        return f" ({signal.Signals(number).name})"
    except ValueError:
        return ""
