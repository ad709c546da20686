"""Who is late? Every rank says what it does; rank 0 watches and names the one waited for."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from torch.distributed import TCPStore

MOST_CHECKS = 20
"""Looks at the ranks in one timeout."""


def _store() -> Any:
    """A connection of its own to the job's store: its calls wait for nobody else's."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(host, port, is_master=False, timeout=timedelta(seconds=60))


@dataclass(frozen=True)
class Beat:
    """What a rank said last."""

    count: int
    """Phases and meetings that it has begun."""
    waiting: bool
    """It may be waiting for the others."""
    step: int
    """The step it is in."""
    phase: str
    """What it is doing."""
    detail: str
    """On what: tasks, an update."""


class Heartbeat:
    """Writes what this rank does to the job's store."""

    def __init__(self, rank: int):
        self.store = _store()
        self.key = f"selfdistill/rank/{rank}"
        self.step = 0
        self.count = 0
        self.phase, self.detail = "starting", ""
        self.waits(False)

    def note(self, phase: str, detail: str = "", waiting: bool = False) -> None:
        """Begin a phase."""
        self.phase, self.detail = phase, detail
        self.count += 1
        self._write(waiting)

    def waits(self, waiting: bool) -> None:
        """A meeting with the others begins or ends."""
        self.count += waiting
        self._write(waiting)

    def _write(self, waiting: bool) -> None:
        said = [self.count, waiting, self.step, self.phase, self.detail]
        self.store.set(self.key, json.dumps(said))


class Watchdog:
    """Ends this process, with a message, when a rank was waited for longer than `timeout_s`."""

    def __init__(self, size: int, timeout_s: float):
        self.size = size
        self.timeout_s = timeout_s
        self.store = _store()
        self.ended = threading.Event()
        self.seen: dict[int, tuple[Beat, float]] = {}
        threading.Thread(target=self._watch, daemon=True, name="watchdog").start()

    def stop(self) -> None:
        """Look no longer."""
        self.ended.set()

    def _watch(self) -> None:
        while not self.ended.wait(self.timeout_s / MOST_CHECKS):
            try:
                problem = self.look(time.monotonic())
            except RuntimeError:  # the store is gone, and with it the job
                return
            if problem is not None and not self.ended.is_set():
                print(f"the run failed: {problem}", file=sys.stderr, flush=True)
                os._exit(1)

    def look(self, now: float) -> str | None:
        """Read what all ranks said; return what is wrong."""
        for rank in range(self.size):
            key = f"selfdistill/rank/{rank}"
            if not self.store.check([key]):
                continue
            beat = Beat(*json.loads(self.store.get(key)))
            if rank not in self.seen or self.seen[rank][0] != beat:
                self.seen[rank] = beat, now
        return late(self.seen, now, self.timeout_s)


def late(seen: Mapping[int, tuple[Beat, float]], now: float, timeout_s: float) -> str | None:
    """Say which rank the others have waited for longer than `timeout_s`, or None.

    It is the one that has begun the fewest phases and meetings. `seen` holds what each rank said
    and when it was first heard.
    """
    stuck = [r for r, (beat, since) in seen.items() if beat.waiting and now - since > timeout_s]
    if not stuck:
        return None
    rank = min(seen, key=lambda r: (seen[r][0].count, seen[r][0].waiting, r))
    beat, since = seen[rank]
    on = f" ({beat.detail})" if beat.detail else ""
    others = ", ".join(str(r) for r in sorted(stuck) if r != rank) or "nobody else"
    return (
        f"rank {rank} is late: it is in step {beat.step}, {beat.phase}{on}, and has said nothing "
        f"new for {now - since:.0f} s; waiting for it: rank {others}. Look at ranks/rank_{rank}.log"
        f" and at what it is working on, or raise launcher.timeout_s={timeout_s:g}"
    )
