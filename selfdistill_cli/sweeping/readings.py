"""What a cell has come to so far, read from its metrics.jsonl while it runs and afterwards."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

How = Literal["final", "best", "auc"]


class Follower:
    """Reads the lines that were added to a metrics.jsonl since the last time."""

    def __init__(self, run: Path, metric: str | Sequence[str], total_steps: int):
        self.path = run / "metrics.jsonl"
        self.total_steps = total_steps
        self.metrics = [metric] if isinstance(metric, str) else list(metric)
        self.step = 0
        self.series: dict[str, list[tuple[int, float | None]]] = {m: [] for m in self.metrics}
        self._position = 0
        self._rest = b""

    @property
    def values(self) -> list[tuple[int, float | None]]:
        """All values so far of the metric, of several the first."""
        return self.series[self.metrics[0]]

    def objective(self, how: How, direction: str | Sequence[str]) -> float | list[float] | None:
        """What the metric comes to, or each of several; None while one has no value."""
        if isinstance(direction, str):
            return objective_of(self.values, how, direction)
        each = zip(self.series.values(), direction, strict=True)
        found = [objective_of(values, how, way) for values, way in each]
        return None if None in found else [value for value in found if value is not None]

    def news(self) -> list[tuple[int, float | None]]:
        """New values of the (first) metric, (step, value); None is one that was not finite.

        A file that became shorter was cut back by a resume, and is read from its start.
        """
        try:
            with self.path.open("rb") as file:
                if file.seek(0, 2) < self._position:
                    self._position, self._rest = 0, b""
                    self.series = {metric: [] for metric in self.metrics}
                file.seek(self._position)
                data = file.read()
                self._position = file.tell()
        except OSError:
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        known = len(self.values)
        for line in filter(None, map(_parsed, lines)):
            self.step = line["step"]
            for metric in self.metrics:
                if metric in line:
                    self.series[metric].append((self.step, line[metric]))
        return self.values[known:]


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(raw)
    except ValueError:
        return None
    return line if isinstance(line, dict) and isinstance(line.get("step"), int) else None


def objective_of(
    values: Sequence[tuple[int, float | None]], how: How, direction: str
) -> float | None:
    """The last value, the best one, or the mean over steps by the trapezoid rule.

    None without any value; nan if a value that counts is not finite.
    """
    numbers = [(step, math.nan if value is None else float(value)) for step, value in values]
    if not numbers:
        return None
    if how == "final":
        return numbers[-1][1]
    finite = [value for _, value in numbers if math.isfinite(value)]
    if how == "best":
        best = max if direction == "maximize" else min
        return best(finite) if finite else math.nan
    if len(finite) < len(numbers):
        return math.nan
    return _mean_over_steps(numbers)


def _mean_over_steps(numbers: Sequence[tuple[int, float]]) -> float:
    width = numbers[-1][0] - numbers[0][0]
    if width <= 0:
        return numbers[-1][1]
    pairs = itertools.pairwise(numbers)
    area = sum((s - r) * (a + b) / 2 for (r, a), (s, b) in pairs)
    return area / width


def error_of(run: Path) -> Mapping[str, Any] | None:
    """What run.json says went wrong in the last attempt: `kind` and `message`."""
    try:
        found = json.loads((run / "run.json").read_bytes())["error"]
        attempts = [int(path.name[8:]) for path in (run / "logs").glob("attempt_*")]
        return found if found is not None and found["attempt"] == max(attempts) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
