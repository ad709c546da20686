"""An environment with a trouble of one's choice: for cells that end badly, each in its own way."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from selfdistill_cli.core.errors import DataError
from selfdistill_cli.envs.code.env import CodeEnv
from selfdistill_cli.envs.settings import CodeEnvSettings


@dataclass(frozen=True, kw_only=True)
class TroubledSettings(CodeEnvSettings):
    """`env=troubled`."""

    implementation: ClassVar[str] = "troubled:TroubledEnv"

    trouble: Literal["none", "late", "kill"]
    """late: a value turns out to be wrong when the data are read; kill: the process is killed."""


class TroubledEnv(CodeEnv):
    """The code environment until trouble comes."""

    def __init__(self, settings: TroubledSettings):
        super().__init__(settings)
        self.trouble = settings.trouble

    def tasks(self, split: str) -> Any:
        """Tasks, or the error of a bad value."""
        if self.trouble == "late":
            raise DataError("env.trouble: got 'late', expected tasks")
        return super().tasks(split)

    def episode(self, task: Any, seed: int) -> Any:
        """An episode, unless the process is killed, as by a system without memory."""
        if self.trouble == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().episode(task, seed)
