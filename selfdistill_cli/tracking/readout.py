"""The words and numbers that a person sees of a run: one step, the time left, the end."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

RECENT_STEPS = 20

COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("reward", "reward/mean", ".3f"),
    ("success", "reward/success", ".3f"),
    ("kl", "policy/approx_kl", ".4f"),
    ("teacher_kl", "teacher/kl", ".4f"),
    ("entropy", "policy/entropy", ".3f"),
    ("tok/s", "time/tokens_per_s", ".0f"),
)
"""What is shown of a step, if it was logged: word, metric, format."""


def cells(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Pairs of word and number of one step. Without a reward the loss is shown instead."""
    found = [(word, number(metrics[key], shape)) for word, key, shape in COLUMNS if key in metrics]
    if "reward/mean" not in metrics and "loss/total" in metrics:
        found.insert(0, ("loss", number(metrics["loss/total"], ".4f")))
    return found


def number(value: Any, shape: str) -> str:
    """A number in a format; a dash for None, the word for one that is not finite."""
    if value is None:
        return "-"
    return format(value, shape) if math.isfinite(value) else str(float(value))


def evaluation_text(metrics: Mapping[str, Any]) -> str:
    """`0.412 [0.360, 0.470]`, or an empty string if this step was not evaluated."""
    if "eval/success" not in metrics:
        return ""
    return _with_interval(
        metrics["eval/success"], metrics.get("eval/success_low"), metrics.get("eval/success_high")
    )


def duration(seconds: float) -> str:
    """`1:52` or `2:03:07`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class TimeLeft:
    """Estimates the time to the last step from the newest steps, evaluations included."""

    def __init__(self, total_steps: int):
        self.total_steps = total_steps
        self._stamps: deque[tuple[int, float]] = deque(maxlen=RECENT_STEPS + 1)

    def note(self, step: int, now: float | None = None) -> None:
        """Step `step` has ended (or, for the first call, the one after it begins)."""
        self._stamps.append((step, time.monotonic() if now is None else now))

    def text(self, now: float | None = None) -> str:
        """Time left as text, a dash before one step was timed."""
        if len(self._stamps) < 2 or self._stamps[-1][0] <= self._stamps[0][0]:
            return "-"
        (first, start), (last, end) = self._stamps[0], self._stamps[-1]
        total = (end - start) / (last - first) * (self.total_steps - last)
        now = time.monotonic() if now is None else now
        return duration(max(0.0, total - (now - end)))


def introduction_lines(info: Mapping[str, Any]) -> list[str]:
    """What is about to run: known keys in words, others as they are, missing ones left out."""
    known = ("run", "directory", "method", "env", "parameters", "device", "sandbox", "total_steps")
    about = [f"{key} {info[key]}" for key in ("method", "env") if info.get(key)]
    if info.get("parameters"):
        about.append(f"{_count(info['parameters'])} parameters")
    if info.get("device"):
        about.append(f"on {info['device']}")
    lines = [f"run {info['run']}"] if info.get("run") else []
    lines.append(", ".join(about))
    if info.get("sandbox"):
        lines.append(f"sandbox: {info['sandbox']}")
    if info.get("directory"):
        lines.append(f"results: {info['directory']}")
    lines += [f"{key}: {value}" for key, value in info.items() if key not in known]
    return [line for line in lines if line]


def summary_text(summary: Mapping[str, Any]) -> str:
    """The end of a run in a few lines.

    `summary` may have: start and end {success, low, high}; panel_tasks; improvement {difference,
    low, high} with a paired interval; directory; next (commands). What is missing is left out.
    """
    lines = [""]
    panel = [(name, summary[name]) for name in ("start", "end") if summary.get(name)]
    if panel:
        size = f" on {summary['panel_tasks']} panel tasks" if "panel_tasks" in summary else ""
        lines.append(f"success{size}, with 95% intervals")
        lines += [f"  {name:<7} {_success(value)}" for name, value in panel]
    if summary.get("improvement"):
        lines.append(f"  change  {_improvement(summary['improvement'])}")
    directory = summary.get("directory")
    if directory:
        lines += [f"results: {directory}", "  metrics.jsonl, trajectories/, checkpoints/"]
    commands = summary.get("next") or _next_commands(directory)
    if commands:
        lines += ["next:", *(f"  {command}" for command in commands)]
    return "\n".join(lines)


def _improvement(change: Mapping[str, float]) -> str:
    low, high = change["low"], change["high"]
    verdict = "it rose" if low > 0 else "it fell" if high < 0 else "no change is shown"
    return f"{change['difference']:+.3f} [{low:+.3f}, {high:+.3f}], paired: {verdict}"


def _next_commands(directory: Any) -> Sequence[str]:
    if not directory:
        return ()
    return (
        f"selfdistill eval {directory}",
        "selfdistill train method=grpo  # another method",
        "selfdistill train --help       # every choice",
    )


def _success(value: Mapping[str, float]) -> str:
    return _with_interval(value["success"], value.get("low"), value.get("high"))


def _with_interval(value: float, low: float | None, high: float | None) -> str:
    interval = "" if low is None or high is None else f" [{low:.3f}, {high:.3f}]"
    return f"{number(value, '.3f')}{interval}"


def _count(value: int) -> str:
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.2f} {letter}"
    return str(value)
