"""The search environment as conf/env/search.yaml has it, with an index folder of its own."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from selfdistill_cli.core.types import Task
from selfdistill_cli.envs.search.env import SearchEnv
from selfdistill_cli.envs.search.settings import SearchSettings

FOLDER = tempfile.TemporaryDirectory()
CONF = Path(__file__).parents[2] / "conf/env/search.yaml"
FULL = {
    "format": "tags", "max_observation": 2000, "snippet": 120, "describe_tools": True,
    "show_choices": False, "max_steps": 20,
}  # fmt: skip


def settings(**changes: Any) -> SearchSettings:
    """The shipped values, with some changed."""
    values = yaml.safe_load(CONF.read_text())
    del values["defaults"], values["_target_"]
    return SearchSettings(**{**values, "index": FOLDER.name, "world_size": 24, **changes})


def search(**changes: Any) -> SearchEnv:
    """A new environment."""
    return SearchEnv(settings(**changes))


@cache
def shared() -> SearchEnv:
    """An environment for tests that only read."""
    return search()


def play(env: SearchEnv, task: Task, texts: list[str]) -> dict[str, Any]:
    """The outcome of an episode with these texts."""
    episode = env.episode(task, 0)
    outcome: Any = {}
    for text in texts:
        outcome = episode.step(text).outcome
    return dict(outcome)
