"""An environment with a trouble of one's choice: for cells that end badly, each in its own way."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from selfdistill_cli.core.errors import DataError
from selfdistill_cli.envs.code.env import CodeEnv
from selfdistill_cli.envs.settings import CodeEnvSettings


@dataclass(frozen=True, kw_only=True)
class TroubledSettings(CodeEnvSettings):
    """`env=troubled`."""

    implementation: ClassVar[str] = "troubled:TroubledEnv"

    trouble: Literal["none", "late", "kill"]
    """late: a value turns out to be wrong in the first step; kill: the process is killed there."""


class TroubledEnv(CodeEnv):
    """The code environment until trouble comes."""

    def __init__(self, settings: TroubledSettings):
        super().__init__(settings)
        self.trouble = settings.trouble
        self.asked = 0

    def tasks(self, split: str) -> Any:
        """Tasks; the second time, in the first step, perhaps the error of a bad value."""
        self.asked += 1
        if self.trouble == "late" and self.asked > 1:
            raise DataError("env.trouble: got 'late', expected tasks")
        return super().tasks(split)

    def episode(self, task: Any, seed: int) -> Any:
        """An episode, or the end by a system without memory."""
        if self.trouble == "kill":
            _wait_for_wandb()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().episode(task, seed)


def _wait_for_wandb() -> None:
    """Until the copy of this cell's run has something to show; it starts beside the training."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        files = Path.cwd().glob("runs/multirun/*/kill/wandb/offline-run-*/run-*.wandb")
        if any(file.stat().st_size > 1000 for file in files):
            return
        time.sleep(0.1)
