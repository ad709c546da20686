"""Train in this very process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from selfdistill_cli.launching.settings import InlineSettings
from selfdistill_cli.launching.threads import sleep_while_waiting
from selfdistill_cli.training.settings import TrainSettings


class Inline:
    """The launcher that starts nothing."""

    def __init__(self, settings: InlineSettings) -> None:
        self.settings = settings

    def launch(self, settings: TrainSettings, container: Mapping[str, Any], display: Any) -> None:
        """Train; `settings.run.name` is set. Raises what `run_training` raises."""
        sleep_while_waiting()
        from selfdistill_cli.training.start import run_training

        run_training(settings, container, display)
