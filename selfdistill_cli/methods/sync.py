"""Syncs: how does the slow copy follow the student?"""

from __future__ import annotations

from selfdistill_cli.core.protocols import Metrics
from selfdistill_cli.methods.settings import NoSyncSettings
from selfdistill_cli.methods.stateless import Stateless


class NoSync(Stateless):
    """There is no slow copy."""

    def __init__(self, settings: NoSyncSettings):
        self.settings = settings

    def after_step(self, step: int) -> Metrics:
        """Nothing follows."""
        return {}
