"""A copy of metrics.jsonl elsewhere, which can neither stall nor kill a run.

The library that takes it lives in a process of its own (`sink_worker.py`). Here a daemon thread
feeds it from a bounded queue; every wait has a time limit, after which lines are dropped and
counted.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from selfdistill_cli.core.disk import writing
from selfdistill_cli.core.errors import UserError
from selfdistill_cli.core.secrets import NO_TELEMETRY, without_secrets
from selfdistill_cli.tracking.feed import Feed, daemon
from selfdistill_cli.tracking.files import compact, plain
from selfdistill_cli.tracking.settings import CopySettings

WORKER = Path(__file__).with_name("sink_worker.py")


class WorkerSink:
    """A `core.protocols.Sink`. `announce` gets at most a few one-line messages, from a thread.

    `order` is the first order of the worker, what it needs to open its copy; `folder` is where
    that lies; `admission_s` is how long to wait for a refusal, which raises UserError between
    `asked` and `remedy`. `environment` is given to the worker; a None takes a variable away.
    """

    on_stop: Callable[[str], None] | None = None
    """Called from a thread if somebody asks over there that the run stop."""

    def __init__(
        self,
        settings: CopySettings,
        name: str,
        folder: Path,
        order: Mapping[str, Any],
        announce: Callable[[str], None] | None,
        environment: Mapping[str, str | None],
        admission_s: float = 0.0,
        asked: str = "",
        remedy: str = "",
        enabled: bool = True,
    ):
        self.settings = settings
        self.folder = folder
        self._state = "starting" if enabled else "disabled"
        self._feed: Feed[str] = Feed(name, settings.log_timeout_s, announce)
        self._answered = threading.Event()
        self._refusal = ""
        self._awaited = admission_s > 0
        if not enabled:
            return
        self._process = self._launch(environment)
        self._threads = [daemon(self._write), daemon(self._listen)]
        limits = {"finish_timeout_s": settings.finish_timeout_s}
        shown = {"samples": settings.samples, "sample_characters": settings.sample_characters}
        self._feed.begin(_line({"init": {**without_secrets(plain(order)), **limits, **shown}}))
        if self._awaited:
            self._wait_until_admitted(admission_s, asked, remedy)

    @property
    def name(self) -> str:
        """What people call the place of the copy."""
        return self._feed.name

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Queue one line. Waits at most `log_timeout_s`, then drops the line and counts it."""
        if self._state == "disabled":
            return
        try:
            usable = self._state in ("starting", "running") and self._process.poll() is None
            self._feed.offer(_line(self.order(step, known(metrics))), usable)
        except Exception as error:  # a value that has no text must not kill the run
            self._feed.note_error(f"line of step {step} was not sent: {error}")

    def order(self, step: int, metrics: dict[str, Any]) -> dict[str, Any]:
        """What the worker is told of a line."""
        return {"step": step, "metrics": metrics}

    def finish(self, status: str) -> None:
        """Close the copy, waiting at most `finish_timeout_s`; then the worker is ended."""
        if self._state in ("disabled", "closed"):
            return
        self._state = "closed"
        end = time.monotonic() + self.settings.finish_timeout_s
        self._feed.end(_line({"finish": status}), end)
        try:
            if self._process.wait(max(0.0, end - time.monotonic())) != 0:
                self._note_worker_end()
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)
            self._feed.note_error(
                f"not finished after {self.settings.finish_timeout_s:g} s and ended; "
                f"what was written until then lies in {self.folder}"
            )
        self._feed.tell_losses()

    def health(self) -> dict[str, int | str]:
        """`state`, and how many lines were accepted, dropped, and errors seen, so far."""
        return {"state": self._state, **self._feed.counts}

    def _launch(self, environment: Mapping[str, str | None]) -> subprocess.Popen[str]:
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        wanted = {**os.environ, "CUDA_VISIBLE_DEVICES": "", **NO_TELEMETRY, **environment}
        backend = Path(__file__).with_name(f"{self.settings.backend}.py")
        with (self.folder / "worker.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-P", str(WORKER), str(backend)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={key: value for key, value in wanted.items() if value is not None},
                start_new_session=True,  # Ctrl-C is for the trainer
            )

    def _wait_until_admitted(self, seconds: float, asked: str, remedy: str) -> None:
        """A refusal is told before training; a silent network only delays it."""
        self._answered.wait(seconds)
        if self._refusal:
            self._state = "closed"
            self._process.kill()
            self._process.wait(5)
            raise UserError(f"{asked}: {self.name} refused the run: {self._refusal} {remedy}")

    def _write(self) -> None:
        """Thread: from the queue into the worker's standard input."""
        pipe = self._process.stdin
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError, ValueError), pipe:
            while (line := self._feed.take()) is not None:
                pipe.write(line)
                pipe.flush()

    def _listen(self) -> None:
        """Thread: what the worker reports, until it ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            report = json.loads(line)
            self._note_report(report["event"], report["text"])
            self._answered.set()
        if self._state != "closed":
            self._state = "ended"
            self._note_worker_end()
        self._answered.set()

    def _note_report(self, event: str, text: str) -> None:
        if event == "refused":
            self._refusal = text
            if self._answered.is_set() or not self._awaited:
                self._feed.note_error(text)
        elif event == "error":
            self._feed.note_error(text)
        elif event == "stop" and self.on_stop is not None:
            self.on_stop(f"{self.name}: {text}")
        elif event == "ready" and self._state == "starting":
            self._state = "running"
            if text:  # the address of an online run
                self._feed.say(text)

    def _note_worker_end(self) -> None:
        where = self.folder / "worker.log"
        self._feed.note_error(f"ended early, lines are missing there; see {where}")


def known(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """What of a line a copy gets: plain values that are known."""
    return {key: value for key, value in plain(metrics).items() if value is not None}


def _line(order: Mapping[str, Any]) -> str:
    return compact(order) + "\n"
