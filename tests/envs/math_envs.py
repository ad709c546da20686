"""Mathematics environments for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from selfdistill_cli.core.types import Score, Stop, Task, Trajectory
from selfdistill_cli.envs.math.env import MathEnv
from selfdistill_cli.envs.math.settings import KINDS, MathSettings

SETTINGS: dict[str, Any] = {
    "data": None, "kinds": list(KINDS), "difficulty": 1, "options": {}, "num_tasks": 300,
    "generator_seed": 0, "answer_format": "hash", "ask_for_format": False, "instructions": None,
    "verifier": "exact", "time_limit_s": 1.0, "attempts": 1, "validation_fraction": 0.1,
    "test_fraction": 0.1,
}  # fmt: skip


def math_settings(**changes: Any) -> MathSettings:
    """Settings with some changed."""
    return MathSettings(**{**SETTINGS, **changes})


def math_env(**changes: Any) -> MathEnv:
    """An environment with some settings changed."""
    return MathEnv(math_settings(**changes))


def attempts(
    env: MathEnv, task: Task, responses: Sequence[str]
) -> tuple[list[Trajectory], list[Score]]:
    """What the environment makes of some responses to a task."""
    outcomes = [env.episode(task, 0).step(text).outcome or {} for text in responses]
    scores = [Score(total=o["success"], success=o["success"], parts={}) for o in outcomes]
    return [
        Trajectory(
            task=task, sibling=i, turns=(), stop=Stop.DONE, outcome=outcome, policy_version=0
        )
        for i, outcome in enumerate(outcomes)
    ], scores
