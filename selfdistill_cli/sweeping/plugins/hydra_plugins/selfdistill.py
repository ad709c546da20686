"""`hydra/sweeper=selfdistill`: the same sweeps behind Hydra's interface for sweepers.

Hydra takes plug-ins from the package `hydra_plugins` alone; `sweeping/hydra_sweeper.py` puts the
folder round this one on the import path.
"""

from __future__ import annotations

import sys
from typing import Any

from hydra.plugins.sweeper import Sweeper
from omegaconf import DictConfig

from selfdistill_cli.core.errors import SelfDistillError
from selfdistill_cli.sweeping.folder import Command
from selfdistill_cli.sweeping.hydra_sweeper import asked
from selfdistill_cli.sweeping.start import sweep


class LedgerSweeper(Sweeper):
    """Runs a sweep when Hydra asks."""

    def setup(self, *, hydra_context: Any, task_function: Any, config: DictConfig) -> None:
        """The engine composes by itself, once for each value."""

    def sweep(self, arguments: list[str]) -> None:
        """Run every combination; leaves by SystemExit with the sweep's exit code."""
        command = Command(
            words=tuple(arguments), config_dir=asked.config_dir, config_name=asked.config_name
        )
        try:
            code = sweep(command)
        except SelfDistillError as error:
            asked.error = error
            code = error.exit_code
        sys.exit(code)
