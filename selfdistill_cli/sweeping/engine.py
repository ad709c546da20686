"""Runs the cells of a sweep, several at once, and writes down what becomes of each."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from selfdistill_cli.analysis.ledger import ENDED, Cell
from selfdistill_cli.config import rules
from selfdistill_cli.config.cells import Made
from selfdistill_cli.core.errors import ConfigError, Preempted
from selfdistill_cli.sweeping import requests
from selfdistill_cli.sweeping.folder import SweepFolder
from selfdistill_cli.sweeping.jobs import prepare
from selfdistill_cli.sweeping.outcome import Reason, finite, outcome_of
from selfdistill_cli.sweeping.processes import Ended, Running, Starter
from selfdistill_cli.sweeping.proposals import Proposer
from selfdistill_cli.sweeping.readings import Follower
from selfdistill_cli.sweeping.settings import SweepSettings
from selfdistill_cli.sweeping.slots import Slots

POLL_S = 0.1
STOPPING = "stopping: running cells write a checkpoint (again: stop at once)"


class Display(Protocol):
    """What a person sees of a sweep."""

    def changed(self, cell: Cell) -> None:
        """A cell has another status."""
        ...

    def progress(self, cells: Mapping[str, Cell], running: Mapping[str, Follower]) -> None:
        """Called often while cells run."""
        ...

    def message(self, text: str) -> None:
        """A line that stays."""
        ...


@dataclass(kw_only=True)
class Active:
    """A cell that runs."""

    name: str
    """Of the cell."""
    process: Running
    """What runs it."""
    follower: Follower
    """Reads its metrics."""
    slot: int
    """Its place."""
    reason: Reason | None = None
    """Why it was asked to stop."""


@dataclass(kw_only=True)
class Engine:
    """A sweep that runs in this process."""

    folder: SweepFolder
    """Holds the directory."""
    settings: SweepSettings
    """The group `sweep`."""
    make: Callable[[Mapping[str, str]], Made]
    """The configuration of a cell; raises ConfigError."""
    proposer: Proposer
    """Which cells there are."""
    starter: Starter
    """Starts them."""
    slots: Slots
    """How many at once."""
    display: Display
    """What is seen."""
    active: dict[str, Active] = field(default_factory=dict[str, Active])
    """Cells that run, by name."""
    requests: int = 0
    """How often a signal asked to stop."""
    told: int = 0
    """How many of them were passed on."""
    given_up: bool = False
    """Everything was cancelled: nothing more is proposed."""
    failed_fast: bool = False
    """A cell failed under on_failure=fail_fast."""

    def run(self) -> int:
        """Run everything that is left to do. Returns the exit code; raises RunError."""
        with self._signals():
            self._settle()
            self.folder.enter(self.proposer.planned())
            waiting = deque(n for n, c in self.folder.cells.items() if c.status not in ENDED)
            while True:
                self._obey()
                self._fill(waiting)
                self._look(waiting)
                self.display.progress(self.folder.cells, self._followers())
                if not self.active and (self._stopping() or self._is_over(waiting)):
                    break
                time.sleep(POLL_S if self.active else POLL_S / 10)
        return self._exit_code()

    def _is_over(self, waiting: deque[str]) -> bool:
        return not waiting and (self.given_up or self.proposer.finished())

    def _stopping(self) -> bool:
        return self.requests > 0 or self.failed_fast

    def _followers(self) -> dict[str, Follower]:
        return {name: active.follower for name, active in self.active.items()}

    def _settle(self) -> None:
        """Find out what became of cells that ran when an earlier sweep ended suddenly."""
        for name, cell in self.folder.cells.items():
            if cell.status == "running":
                self.display.message(f"{name} ran in an earlier start: waiting for its end")
                ended = self.starter.settle(cell, self._stopping)
                self._close(cell, ended or Ended(code=75, asked=True, seconds=0.0, said=""), None)

    def _fill(self, waiting: deque[str]) -> None:
        """Start cells while there is room for them."""
        while len(self.active) < self.slots.count and not self._stopping():
            if not waiting:
                planned = None if self.given_up else self.proposer.next()
                if planned is None:
                    return
                (name,) = self.folder.enter([planned])
                self.proposer.named(name, planned)
                waiting.append(name)
            name = waiting.popleft()
            if self.folder.cells[name].status not in ENDED:
                self._start(self.folder.cells[name])

    def _start(self, cell: Cell) -> None:
        try:
            made = self.make(cell.values)
            rules.check(made.settings)
        except ConfigError as error:
            self._note(cell.name, status="invalid", error=str(error))
            return
        prepare(self.folder, cell, deepcopy(made.container))
        slot = min(set(range(self.slots.count)) - {a.slot for a in self.active.values()})
        cell = self.folder.change(
            cell.name,
            status="running",
            attempt=cell.attempt + 1,
            error=None,
            pid=None,
            job=None,
            log=str(self.folder.path.absolute() / "logs" / f"{cell.name}.log"),
        )
        process = self.starter.start(cell, self.slots.environments[slot])
        steps = made.settings.run.max_steps
        follower = Follower(Path(cell.run), self.settings.metric, steps)
        self.active[cell.name] = Active(
            name=cell.name, process=process, follower=follower, slot=slot
        )
        self.display.changed(cell)

    def _look(self, waiting: deque[str]) -> None:
        """See who has ended, and who should."""
        for name, active in list(self.active.items()):
            cell = self.folder.cells[name]
            if cell.pid is None and (pid := active.process.pid()) is not None:
                cell = self.folder.change(name, pid=pid)
            ended = active.process.poll()
            for step, value in active.follower.news():
                if active.reason is None and self.proposer.should_stop(name, step, value):
                    self._ask(active, "pruned")
            if ended is not None:
                del self.active[name]
                self._close(cell, ended, active.reason, waiting)

    def _close(
        self, cell: Cell, ended: Ended, reason: Reason | None, waiting: deque[str] | None = None
    ) -> None:
        """Write down how an attempt ended, and what follows from it."""
        follower = Follower(Path(cell.run), self.settings.metric, 0)
        follower.news()
        objective = follower.objective(self.settings.objective, self.settings.direction)
        status, error = outcome_of(ended, reason, Path(cell.run), objective)
        shown = objective if finite(objective) else None
        again = status == "failed" and self._again(cell)
        self._note(
            cell.name,
            status="pending" if again else status,
            error=error,
            exit_code=ended.code,
            objective=shown,
            duration_s=cell.duration_s + ended.seconds,
        )
        if again and waiting is not None:
            waiting.appendleft(cell.name)
        if status in ("failed", "nan") and self.settings.on_failure == "fail_fast":
            self._fail_fast(cell.name)

    def _again(self, cell: Cell) -> bool:
        return self.settings.on_failure == "retry" and cell.attempt <= self.settings.retries

    def _fail_fast(self, name: str) -> None:
        self.failed_fast = True
        self.display.message(f"{name} failed: sweep.on_failure=fail_fast stops the sweep")
        for active in self.active.values():
            self._ask(active, "preempted")

    def _note(self, name: str, **changed: Any) -> None:
        cell = self.folder.change(name, **changed)
        self.display.changed(cell)
        if cell.status in ENDED:
            self.proposer.tell(name, cell.status, cell.objective)

    def _ask(self, active: Active, reason: Reason) -> None:
        active.reason = active.reason or reason
        active.process.ask()

    def _obey(self) -> None:
        """Do what signals and `selfdistill sweep cancel` ask for."""
        if self.requests > self.told:
            self.told = self.requests
            self.display.message(STOPPING if self.told == 1 else "stopping at once")
            for active in self.active.values():
                self._ask(active, "preempted")
                if self.told > 1:
                    active.process.kill()
        for name in requests.taken(self.folder.path):
            if name == requests.ALL:
                self.given_up = True
                for left in list(self.folder.cells):
                    self._cancel(left)
            else:
                self._cancel(name)

    def _cancel(self, name: str) -> None:
        if name in self.active:
            self._ask(self.active[name], "cancelled")
        elif name in self.folder.cells and self.folder.cells[name].status not in ENDED:
            self._note(name, status="cancelled")

    @contextmanager
    def _signals(self) -> Generator[None, None, None]:
        def receive(number: int, frame: FrameType | None) -> None:
            # SIGUSR1 is a warning of a cluster, which may come twice.
            self.requests += 0 if number == signal.SIGUSR1 and self.requests else 1

        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
        previous = {number: signal.signal(number, receive) for number in numbers}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _exit_code(self) -> int:
        statuses = {cell.status for cell in self.folder.cells.values()}
        if statuses & {"preempted", "pending"} and not self.failed_fast:
            return Preempted.exit_code
        return 1 if statuses & {"failed", "nan", "invalid"} else 0
