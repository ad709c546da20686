"""The tools environment."""

from __future__ import annotations

from typing import ClassVar, get_args

from selfdistill_cli.core.hints import HintKind
from selfdistill_cli.envs.agents.env import AgentEnv
from selfdistill_cli.envs.tools.domain import ALL_SPLITS, ToolsDomain
from selfdistill_cli.envs.tools.settings import ToolsEnvSettings


class ToolsEnv(AgentEnv):
    """Requests that tools with JSON schemas fulfil; the final state and the answer decide."""

    name = "tools"
    hints: frozenset[HintKind] = frozenset(get_args(HintKind))
    splits: ClassVar[tuple[str, ...]] = ALL_SPLITS

    def __init__(self, settings: ToolsEnvSettings) -> None:
        """Keep the settings; reads no file."""
        domain = ToolsDomain(settings)
        super().__init__(settings, domain)
        self._tools = domain

    def fingerprint(self) -> str:
        """Return the SHA-256 of what `env.tools` and `env.data` hold."""
        return self._tools.fingerprint()

    def task_counts(self) -> dict[str, int] | None:
        """Return how many tasks of each split `env.data` holds; None for the built-in ones.

        Raises ConfigError, DataError.
        """
        return self._tools.task_counts()
