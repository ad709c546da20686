"""Ctrl-C and SIGTERM: the first asks to finish the step, the second stops at once."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """Context in which the first SIGINT or SIGTERM sets `requested` and a second one kills."""

    def __init__(self, announce: Callable[[str], None]):
        self.announce = announce
        self.requested = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.requested = True
        self.announce("stopping after this step, with a checkpoint (again: stop at once)")
