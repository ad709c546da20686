"""Train in this very process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from selfdistill_cli.launching.ranks import is_one_of_several, train_as_rank
from selfdistill_cli.launching.settings import InlineSettings
from selfdistill_cli.launching.threads import sleep_while_waiting
from selfdistill_cli.training.interrupts import hold_back, is_unattended
from selfdistill_cli.training.settings import TrainSettings


class Inline:
    """The launcher that starts nothing; torchrun or deepspeed may have started this process."""

    def __init__(self, settings: InlineSettings) -> None:
        self.settings = settings

    def launch(self, settings: TrainSettings, container: Mapping[str, Any], display: Any) -> int:
        """Train; `settings.run.name` is set. Raises what `run_training` raises."""
        sleep_while_waiting()
        if is_unattended():
            hold_back()
        if is_one_of_several():
            train_as_rank(settings, container, display, self.settings.timeout_s)
            return 0
        from selfdistill_cli.training.start import run_training

        run_training(settings, container, display)
        return 0
