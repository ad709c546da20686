"""Run directories with chosen numbers, in the format of the trainer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from selfdistill_cli.core.statistics import success_interval
from selfdistill_cli.tracking.metrics_file import MetricsFile

Rows = Sequence[Sequence[float]]

TARGETS = "selfdistill_cli.methods.settings"


def config(method: str, seed: int, **changes: Any) -> dict[str, Any]:
    """The part of a configuration that a comparison looks at; `changes` by dotted key."""
    found: dict[str, Any] = {
        "seed": seed,
        "optim": {"_target_": "selfdistill_cli.training.settings.OptimSettings", "lr": 0.00015},
        "method": {
            "_target_": f"{TARGETS}.MethodSettings",
            "name": method,
            "group_size": 4,
            "credit": {"_target_": f"{TARGETS}.UniformSettings"},
        },
        "batch": {"tasks_per_step": 2},
        "eval": {"every": 1, "panel": "validation", "temperature": 1.0, "hints": []},
        "tracker": {"_target_": "selfdistill_cli.tracking.settings.NoTrackerSettings"},
        "run": {"name": f"{method}_{seed}", "root": "runs", "max_steps": 2},
    }
    for key, value in changes.items():
        *path, last = key.split(".")
        node = found
        for name in path:
            node = node[name]
        node[last] = value
    return found


def write_evaluation(
    folder: Path, step: int, successes: Rows, tasks: Sequence[str] | None = None, name: str = ""
) -> None:
    """One file of evaluations/."""
    ids = list(tasks or [f"task-{i}" for i in range(len(successes))])
    content = {
        "step": step,
        "task_ids": ids,
        "successes": [list(row) for row in successes],
        "mean_reward": 0.5,
        "mean_length": 10.0 + step,
        "panel": hashlib.sha256("\n".join(ids).encode()).hexdigest()[:12],
    }
    path = folder / "evaluations" / f"step_{step:06d}{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def write_run(
    root: Path,
    method: str,
    seed: int,
    curve: Mapping[int, Rows],
    *,
    name: str = "",
    status: str = "finished",
    last_step: int | None = None,
    played: bool = True,
    metrics: Mapping[str, float] | None = None,
    tasks: Sequence[str] | None = None,
    **changes: Any,
) -> Path:
    """Write a run whose evaluations are `curve`: step to [N][k] successes."""
    folder = root / (name or f"{method}_{seed}")
    folder.mkdir(parents=True)
    text = yaml.safe_dump(config(method, seed, **changes), sort_keys=False)
    (folder / "config.yaml").write_text(text)
    (folder / "run.json").write_text(json.dumps({"status": status, "attempt": 1}))
    file = MetricsFile(folder / "metrics.jsonl")
    for step in range((max(curve, default=0) if last_step is None else last_step) + 1):
        line: dict[str, float] = {}
        if step > 0:
            line = {**{f"time/{p}_s": 0.1 * step for p in ("act", "learn", "step")}}
            line |= {"reward/success": 0.5, "rollout/episodes": 8.0} if played else {}
            line |= {key: value * step for key, value in (metrics or {}).items()}
        if step in curve:
            line["eval/success"] = success_interval(curve[step], level=0.95).point
        file.append(step, line)
    for step, successes in curve.items():
        write_evaluation(folder, step, successes, tasks)
    return folder
