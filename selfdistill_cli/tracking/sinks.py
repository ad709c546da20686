"""All copies of a run together: opened before it, closed after it, each on its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from selfdistill_cli.core.parts import build_part
from selfdistill_cli.core.protocols import Sink
from selfdistill_cli.core.settings import Settings
from selfdistill_cli.tracking.feed import Feed, daemon
from selfdistill_cli.tracking.settings import each_tracker
from selfdistill_cli.tracking.worker_sink import WorkerSink

LOG_TIMEOUT_S = 0.05
FINISH_TIMEOUT_S = 15.0
"""Limits of a sink of a user, which has no settings for them."""


def open_sinks(
    tracker: Settings,
    run_dir: Path,
    name: str,
    run_id: str,
    config: Mapping[str, Any],
    announce: Callable[[str], None],
    stop: Callable[[str], None],
) -> list[OpenSink]:
    """Open every copy that the settings ask for; `stop` is called if one asks the run to stop.

    If one cannot be opened, the others are closed and its error is raised.
    """
    opened: list[OpenSink] = []
    try:
        for key, settings in each_tracker(tracker).items():
            sink = build_part(key, settings, Sink, run_dir, name, run_id, config, announce)
            if isinstance(sink, WorkerSink):
                sink.on_stop = stop
                opened.append(sink)
            else:
                opened.append(ThreadSink(key, sink, announce))
    except BaseException:
        finish_sinks(opened, "failed")
        raise
    return opened


def finish_sinks(
    sinks: Sequence[OpenSink], status: str
) -> dict[str, dict[str, int | str]]:
    """Close all at the same time; return what each took and lost, by its name."""
    threads = [daemon(lambda sink=sink: sink.finish(status)) for sink in sinks]
    for thread in threads:
        thread.join()
    return {sink.name: sink.health() for sink in sinks}


class ThreadSink:
    """A sink of a user behind a queue: it may hang, raise or be slow, the run goes on."""

    def __init__(self, name: str, sink: Sink, announce: Callable[[str], None] | None):
        self.name = name
        self._sink = sink
        self._feed: Feed[Callable[[], None]] = Feed(name, LOG_TIMEOUT_S, announce)
        self._state = "running"
        self._thread = daemon(self._work)

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Queue one line."""
        line = dict(metrics)
        self._feed.offer(lambda: self._sink.log(step, line), self._state == "running")

    def finish(self, status: str) -> None:
        """Let the sink finish, waiting a limited time."""
        end = time.monotonic() + FINISH_TIMEOUT_S
        self._state = "closed"
        self._feed.end(lambda: self._sink.finish(status), end)
        self._thread.join(max(0.0, end - time.monotonic()))
        if self._thread.is_alive():
            self._feed.note_error(f"not finished after {FINISH_TIMEOUT_S:g} s and left alone")
        self._feed.tell_losses()

    def health(self) -> dict[str, int | str]:
        """`state`, and how many lines were accepted, dropped, and errors seen, so far."""
        return {"state": self._state, **self._feed.counts}

    def _work(self) -> None:
        while (call := self._feed.take()) is not None:
            try:
                call()
            except Exception as error:  # whatever a part of a user raises
                self._feed.note_error(f"{type(error).__name__}: {error}")


OpenSink = WorkerSink | ThreadSink
"""A copy that a run writes to."""
