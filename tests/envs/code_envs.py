"""Code environments for tests: small files of tasks, and graded attempts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from selfdistill_cli.core.types import Score, Stop, Task, Trajectory
from selfdistill_cli.envs.code.env import CodeEnv
from selfdistill_cli.envs.settings import CodeEnvSettings
from selfdistill_cli.sandbox.settings import SandboxSettings

FIXTURE = str(Path(__file__).parent / "human_eval_style.jsonl")
SANDBOX = SandboxSettings(
    level="auto", workers=2, time_limit_s=1.0, memory_mb=128, max_file_mb=1, max_output_kb=64
)
DEFAULTS: dict[str, Any] = {
    "data": None,
    "instructions": None,
    "validation_fraction": 0.0,
    "test_fraction": 0.0,
    "attempts": 1,
    "shown_failures": 2,
    "sandbox": SANDBOX,
}


def make_env(**changes: Any) -> CodeEnv:
    return CodeEnvSettings(**{**DEFAULTS, **changes}).build()


def task_of(env: CodeEnv, task_id: str) -> Task:
    tasks = [*env.tasks("train"), *env.tasks("test")]
    return next(task for task in tasks if task.id == task_id)


def attempt(env: CodeEnv, task: Task, *programs: str) -> tuple[list[Trajectory], list[Score]]:
    outcomes = env.grade([task] * len(programs), programs)
    trajectories = [
        Trajectory(
            task=task, sibling=i, turns=(), stop=Stop.DONE, outcome=outcome, policy_version=0
        )
        for i, outcome in enumerate(outcomes)
    ]
    scores = [
        Score(total=0.0, success=float(o["passed"] == o["total"]), parts={}) for o in outcomes
    ]
    return trajectories, scores


def user_task(tmp_path: Path, **fields: Any) -> Task:
    """The task of a file with one line."""
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps({"task_id": "u", "entry_point": "f", "split": "train", **fields}))
    return make_env(data=str(path)).tasks("train")[0]
