"""The tools environment as its YAML file has it, with some settings changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from selfdistill_cli.envs.tools.env import ToolsEnv
from selfdistill_cli.envs.tools.settings import ToolsEnvSettings

FILE = Path(__file__).parents[2] / "conf/env/tools.yaml"
DEFAULTS: dict[str, Any] = {
    key: value
    for key, value in yaml.safe_load(FILE.read_text(encoding="utf-8")).items()
    if key not in ("defaults", "_target_")
}
WRITING = {"format": "native", "show_choices": False, "describe_tools": True, "max_calls": 5}
PYTHON = '''
"""A little bank."""


def deposit(state, account: str, amount: float, note: str = "") -> str:
    """Adds money to an account.

    account: whose
    """
    if amount < 0:
        raise ValueError("negative amount")
    state[account] = state.get(account, 0) + amount
    return f"{account}: {state[account]}"


def balance(state, account: str) -> float:
    """Says how much is there."""
    return state[account]


def _helper(x):
    return x
'''
TASKS = [
    {"prompt": "Give Ada 5.", "state": {"ada": 1}, "final_state": {"ada": 6}, "split": "train",
     "calls": [{"name": "deposit", "arguments": {"account": "ada", "amount": 5}}]},
    {"prompt": "How much has Bo?", "state": {"bo": 7}, "answer": 7, "split": "train",
     "calls": [{"name": "balance", "arguments": {"account": "bo"}}]},
]  # fmt: skip


def tools_env(**changes: Any) -> ToolsEnv:
    """The environment."""
    return ToolsEnv(ToolsEnvSettings(**{**DEFAULTS, **changes}))


def played(env: ToolsEnv, task: Any, texts: list[str]) -> dict[str, Any]:
    """The outcome of an episode in which these texts are written."""
    episode = env.episode(task, 0)
    return dict([episode.step(text) for text in texts][-1].outcome or {})


def native(name: str, **arguments: Any) -> str:
    """A call as full-size models write it."""
    import json

    call = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{call}\n</tool_call>"
