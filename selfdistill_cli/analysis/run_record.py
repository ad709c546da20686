"""What a run directory holds, read without torch and without the code that wrote it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from selfdistill_cli.core.errors import DataError
from selfdistill_cli.core.statistics import Array

EVALUATION = re.compile(r"step_\d+\.json")
"""The loop's own evaluations; `selfdistill eval` writes longer names beside them."""

READ_KEYS: dict[str, Callable[[Any], Any]] = {
    "seed": int,
    "method.name": str,
    "method.group_size": int,
    "batch.tasks_per_step": int,
    "run.max_steps": int,
    "eval.every": int,
    "eval.temperature": float,
    "eval.hints": list,
}
"""Keys of config.yaml that a comparison cannot do without, and what their values become."""


@dataclass(frozen=True, kw_only=True)
class PanelResult:
    """One evaluation of the panel."""

    step: int
    """The step after which it was measured."""
    panel: str
    """Fingerprint of the panel's tasks."""
    successes_N: Array
    """[N] mean success over the attempts at each task."""
    attempts: tuple[int, ...]
    """[N] attempts at each task."""
    mean_length: float
    """Mean sampled tokens per attempt."""

    @property
    def success(self) -> float:
        """Mean over tasks."""
        return float(self.successes_N.mean())


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run, as its directory tells it."""

    path: Path
    """The run directory."""
    config: Mapping[str, Any]
    """The resolved configuration, as nested mappings."""
    status: str
    """running, finished, preempted or failed, as run.json says."""
    lines: tuple[Mapping[str, Any], ...]
    """Lines of metrics.jsonl that can be read."""
    evaluations: tuple[PanelResult, ...]
    """Evaluations that can be read, by step."""
    problems: tuple[str, ...]
    """What could not be read."""

    @property
    def name(self) -> str:
        """Name of the directory."""
        return self.path.name

    @property
    def seed(self) -> int:
        """Keys the run's random streams."""
        return int(self.config["seed"])

    @property
    def method(self) -> str:
        """Name of the method."""
        return str(self.config["method"]["name"])

    @property
    def finished(self) -> bool:
        """Whether it came to its end and was measured there."""
        last = self.evaluations[-1].step if self.evaluations else -1
        return self.status == "finished" and last >= int(self.config["run"]["max_steps"])

    @property
    def last_step(self) -> int:
        """Step of the last line of metrics.jsonl, 0 without one."""
        return int(self.lines[-1]["step"]) if self.lines else 0

    @property
    def panel(self) -> tuple[str, ...]:
        """What must agree before two runs' successes may be compared."""
        settings = self.config["eval"]
        first = self.evaluations[0]
        return (
            f"fingerprint {first.panel}",
            f"{len(first.successes_N)} tasks",
            f"{first.attempts[0]} attempts",
            f"temperature {settings['temperature']}",
            f"hints [{', '.join(settings['hints'])}]",
        )

    def episodes(self) -> list[int]:
        """Episodes played before each evaluation; demonstrations are none."""
        played = [(line["step"], line.get("rollout/episodes", 0)) for line in self.lines]
        return [
            int(sum(count for step, count in played if step <= evaluation.step))
            for evaluation in self.evaluations
        ]

    def last(self, key: str) -> float | None:
        """The last value of a metric, None if it was never measured."""
        values = self.column(key)
        return values[-1] if values else None

    def column(self, key: str) -> list[float]:
        """All values of a metric, in order."""
        values = (line.get(key) for line in self.lines)
        return [float(value) for value in values if isinstance(value, (int, float))]


def read_run(path: Path) -> RunRecord:
    """Read a run directory; raises DataError if it cannot be used at all."""
    config = _config(path / "config.yaml")
    status, problems = _status(path / "run.json")
    lines, broken_lines = _lines(path / "metrics.jsonl")
    # An evaluation is written before its step's line: without the line the step is not complete.
    steps = {line["step"] for line in lines}
    evaluations: list[PanelResult] = []
    for file in sorted((path / "evaluations").glob("step_*.json")):
        if EVALUATION.fullmatch(file.name):
            try:
                evaluations.append(_evaluation(file))
            except DataError as error:
                problems.append(str(error))
    evaluations = sorted((e for e in evaluations if e.step in steps), key=lambda e: e.step)
    _check_panel(path, evaluations)
    return RunRecord(
        path=path,
        config=config,
        status=status,
        lines=tuple(lines),
        evaluations=tuple(evaluations),
        problems=(*problems, *broken_lines),
    )


def _config(path: Path) -> dict[str, Any]:
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        for place, kind in READ_KEYS.items():
            kind(reduce(getitem, place.split("."), config))
    except (OSError, ValueError, TypeError, LookupError, yaml.YAMLError) as error:
        raise DataError(
            f"{path}: not the configuration of a run ({_short(error)}); expected what "
            "selfdistill train wrote; logs/attempt_<n>/config.yaml is a copy"
        ) from error
    return config


def _status(path: Path) -> tuple[str, list[str]]:
    try:
        return str(json.loads(path.read_bytes())["status"]), []
    except (OSError, ValueError, TypeError, LookupError) as error:
        return "unknown", [f"{path.name} cannot be read ({_short(error)})"]


def _lines(path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Lines that can be read, and what is wrong with others; a torn last line is left out."""
    try:
        rows = path.read_bytes().split(b"\n")
    except OSError as error:
        return [], [f"{path.name} cannot be read ({_short(error)})"]
    lines: list[dict[str, Any]] = []
    problems: list[str] = []
    for number, raw in enumerate(rows, start=1):
        if not raw.strip():
            continue
        try:
            line = json.loads(raw)
            lines.append({**line, "step": int(line["step"])})
        except (ValueError, TypeError, LookupError):
            if number != len(rows):
                problems.append(
                    f"{path.name} line {number}: found {raw[:40]!r}, expected a JSON object "
                    "with a `step`"
                )
    return lines, problems


def _evaluation(path: Path) -> PanelResult:
    try:
        data = json.loads(path.read_bytes())
        rows = [np.asarray(row, dtype=np.float64) for row in data["successes"]]
        whole = all(row.size and np.isfinite(row).all() for row in rows)
        if not rows or len(rows) != len(data["task_ids"]) or not whole:
            raise ValueError("`successes` needs numbers for every one of `task_ids`")
        return PanelResult(
            step=int(data["step"]),
            panel=str(data["panel"]),
            successes_N=np.array([row.mean() for row in rows]),
            attempts=tuple(row.size for row in rows),
            mean_length=float(data["mean_length"]),
        )
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise DataError(f"evaluations/{path.name} cannot be read ({_short(error)})") from error


def _check_panel(path: Path, evaluations: list[PanelResult]) -> None:
    panels = {evaluation.panel for evaluation in evaluations}
    if len(panels) > 1:
        raise DataError(
            f"{path}: its evaluations are of {len(panels)} panels ({', '.join(sorted(panels))}); "
            "expected one, so that the start and the end can be compared"
        )
    if evaluations and evaluations[0].step != 0:
        raise DataError(
            f"{path}: the first evaluation is of step {evaluations[0].step}; expected "
            "evaluations/step_000000.json, from which gains are measured"
        )


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    detail = f"no key {text}" if isinstance(error, KeyError) else text
    return detail if len(detail) <= 90 else f"{detail[:87]}..."
