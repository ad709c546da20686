"""What stands between a run and a copy of its metrics: a queue, a time budget, counters."""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")

QUEUE_LINES = 1000


class Feed(Generic[Item]):
    """A bounded queue that the run fills and a thread empties; what finds no place is counted.

    `name` stands before every message; `log_timeout_s` is how long one item may wait.
    """

    def __init__(self, name: str, log_timeout_s: float, announce: Callable[[str], None] | None):
        self.name = name
        self.counts = {"accepted": 0, "dropped": 0, "errors": 0}
        self._timeout_s = log_timeout_s
        self._announce = announce or _to_standard_error
        self._queue: queue.Queue[Item | None] = queue.Queue(QUEUE_LINES)
        self._lock = threading.Lock()

    def begin(self, first: Item) -> None:
        """Queue what opens the copy; no line of the run."""
        self._queue.put_nowait(first)

    def offer(self, item: Item, usable: bool) -> None:
        """Queue an item, or drop and count it; without a receiver (`usable`) there is no wait."""
        # After a first lost line there is no more waiting: a stuck receiver costs one time limit.
        wait = 0.0 if self.counts["dropped"] else self._timeout_s
        try:
            if not usable:
                raise queue.Full
            self._queue.put(item, block=wait > 0, timeout=wait)
            self.counts["accepted"] += 1
        except queue.Full:
            self.counts["dropped"] += 1
            if self.counts["dropped"] == 1:
                self.note_error("takes no more lines; metrics.jsonl is complete")

    def take(self) -> Item | None:
        """Wait for the next item; None after the last one."""
        return self._queue.get()

    def end(self, last: Item, until: float) -> None:
        """Queue a last item and the end; waits at most until `until`, a monotonic time."""
        with contextlib.suppress(queue.Full):
            self._queue.put(last, timeout=max(0.0, until - time.monotonic()))
            self._queue.put(None, timeout=max(0.0, until - time.monotonic()))

    def say(self, text: str) -> None:
        """Tell a person one line."""
        self._announce(f"{self.name}: {text}")

    def note_error(self, text: str) -> None:
        """Count an error; the first one is told."""
        with self._lock:
            self.counts["errors"] += 1
            first = self.counts["errors"] == 1
        if first:
            self.say(f"{text} (further errors are only counted)")

    def tell_losses(self) -> None:
        """Say at the end how much is missing over there, if anything is."""
        dropped, errors = self.counts["dropped"], self.counts["errors"]
        if dropped or errors:
            self.say(
                f"in all {dropped} lines dropped and {errors} errors; metrics.jsonl is complete, "
                "and `selfdistill sync RUN` builds a whole copy from it"
            )


def daemon(target: Callable[[], None]) -> threading.Thread:
    """Start a thread that never keeps Python from ending."""
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def _to_standard_error(text: str) -> None:
    print(text, file=sys.stderr)
