"""An environment that fails on rank 1 alone: a machine that is ill, as its tasks are not."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from selfdistill_cli.envs.code.env import CodeEnv
from selfdistill_cli.envs.settings import CodeEnvSettings


@dataclass(frozen=True, kw_only=True)
class LateSettings(CodeEnvSettings):
    """`env=late`."""

    implementation: ClassVar[str] = "late:LateEnv"

    on_rank_1: Literal["sleep", "raise"]
    """sleep: an episode never begins; raise: the tasks cannot be read."""


class LateEnv(CodeEnv):
    """The code environment, ill on rank 1."""

    def __init__(self, settings: LateSettings):
        super().__init__(settings)
        self.ill = settings.on_rank_1 if os.environ.get("RANK") == "1" else None

    def tasks(self, split: str) -> Any:
        """Tasks, or an error of nobody's making."""
        if self.ill == "raise":
            raise ValueError("this disk is broken")
        return super().tasks(split)

    def episode(self, task: Any, seed: int) -> Any:
        """An episode, at last."""
        if self.ill == "sleep":
            time.sleep(600)
        return super().episode(task, seed)
