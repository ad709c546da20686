"""Text games for tests: the shipped settings with some changed, and players."""

from __future__ import annotations

import random
from typing import Any

from selfdistill_cli.core.types import Score, Stop, Task, Trajectory
from selfdistill_cli.envs.textgame.env import TextGameEnv
from selfdistill_cli.envs.textgame.settings import DifficultySettings, TextGameSettings

KINDS = ("fetch", "keys", "recipe", "trade")
SIZE: dict[str, int] = {"rooms": 4, "containers": 2, "objects": 2, "quest": 2}
DEFAULTS: dict[str, Any] = {
    "format": "tags", "max_steps": 24, "max_observation": 1000, "instructions": None,
    "describe_tools": True, "show_choices": True, "source": "builtin", "kinds": list(KINDS),
    "train_tasks": 400, "held_out_tasks": 200, "cache": None, "prompt_skills": None,
}  # fmt: skip


def text_game(difficulty: dict[str, int] | None = None, **changes: Any) -> TextGameEnv:
    """The environment with some settings changed."""
    size = DifficultySettings(**{**SIZE, **(difficulty or {})})
    known = {k: v for k, v in DEFAULTS.items() if k in TextGameSettings.__dataclass_fields__}
    return TextGameSettings(**{**known, "difficulty": size, **changes}).build()


def play(env: TextGameEnv, task: Task, texts: list[str]) -> Trajectory:
    """The trajectory of an agent that writes these texts."""
    episode = env.episode(task, 0)
    outcome: Any = None
    for text in texts:
        result = episode.step(text)
        outcome = result.outcome
        if result.done:
            break
    return Trajectory(
        task=task, sibling=0, turns=(), stop=Stop.DONE, outcome=outcome, policy_version=0
    )


def score(trajectory: Trajectory) -> Score:
    """Its success and no more."""
    return Score(total=0.0, success=trajectory.outcome["success"], parts={})


def wander(env: TextGameEnv, task: Task, seed: int) -> dict[str, Any]:
    """The outcome of an agent that does anything that is possible."""
    world, dice = env._domain.world(task, 0), random.Random(seed)
    for _ in range(env._settings.max_steps):
        choices = world.choices()
        assert 0 < len(choices) <= 12
        if world.act(dice.choice(choices)).done:
            break
    return dict(world.facts())
