"""A copy of metrics.jsonl in Weights & Biases, which can neither stall nor kill a run.

wandb lives in a process of its own (`wandb_worker.py`). Here a daemon thread feeds it from a
bounded queue; every wait has a time limit, after which lines are dropped and counted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from selfdistill_cli.core.disk import writing
from selfdistill_cli.core.errors import UserError
from selfdistill_cli.tracking.files import compact, plain
from selfdistill_cli.tracking.metrics_file import deterministic_view
from selfdistill_cli.tracking.settings import WandbSettings

QUEUE_LINES = 1000
SECRET_NAME = re.compile(
    r"(api_?key|password|passwd|secret|credential|(access|auth|hub|api)_?token)s?$", re.I
)
REDACTED = "<removed>"


class WandbSink:
    """A `core.protocols.Sink`. `announce` gets at most a few one-line messages, from a thread.

    Raises UserError at construction if W&B refuses the run (mode=online without a login).
    """

    def __init__(
        self,
        settings: WandbSettings,
        run_dir: Path,
        run_name: str,
        run_id: str,
        config: Mapping[str, Any],
        announce: Callable[[str], None] | None = None,
    ):
        self.settings = settings
        self.folder = Path(run_dir).absolute() / "wandb"
        self._announce = announce or _to_standard_error
        self._queue: queue.Queue[str | None] = queue.Queue(QUEUE_LINES)
        self._counts = {"accepted": 0, "dropped": 0, "errors": 0}
        self._state = "disabled" if settings.mode == "disabled" else "starting"
        self._lock = threading.Lock()
        self._answered = threading.Event()
        self._refusal = ""
        if settings.mode != "disabled":
            self._process = self._launch()
            self._threads = [_daemon(self._feed), _daemon(self._listen)]
            self._queue.put_nowait(_line({"init": self._first_order(run_name, run_id, config)}))
            self._wait_until_admitted()

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Queue one line. Waits at most `log_timeout_s`, then drops the line and counts it."""
        if self._state == "disabled":
            return
        try:
            known = told_to_wandb(metrics)
            order = {"step": step, "metrics": known, "digest": digest_of(known)}
            self._accept(_line(order))
        except Exception as error:  # a value that has no text must not kill the run
            self._note_error(f"line of step {step} was not sent: {error}")

    def finish(self, status: str) -> None:
        """Close the W&B run, waiting at most `finish_timeout_s`; then the worker is ended."""
        if self._state in ("disabled", "closed"):
            return
        self._state = "closed"
        end = time.monotonic() + self.settings.finish_timeout_s
        with contextlib.suppress(queue.Full):
            self._queue.put(_line({"finish": status}), timeout=self.settings.finish_timeout_s)
            self._queue.put(None, timeout=max(0.0, end - time.monotonic()))
        try:
            if self._process.wait(max(0.0, end - time.monotonic())) != 0:
                self._note_worker_end()
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)
            self._note_error(
                f"not finished after {self.settings.finish_timeout_s:g} s and ended; "
                f"`wandb sync` uploads what lies in {self.folder}"
            )
        self._tell_losses()

    def _tell_losses(self) -> None:
        dropped, errors = self._counts["dropped"], self._counts["errors"]
        if dropped or errors:
            self._announce(
                f"W&B: in all {dropped} lines dropped and {errors} errors; metrics.jsonl is "
                "complete, and `selfdistill sync RUN` builds a whole W&B run from it"
            )

    def health(self) -> dict[str, int | str]:
        """`state`, and how many lines were accepted, dropped, and errors seen, so far."""
        return {"state": self._state, **self._counts}

    def _accept(self, line: str) -> None:
        usable = self._state in ("starting", "running") and self._process.poll() is None
        # After a first lost line there is no more waiting: a stuck worker costs one time limit.
        wait = 0.0 if self._counts["dropped"] else self.settings.log_timeout_s
        try:
            if not usable:
                raise queue.Full
            self._queue.put(line, block=wait > 0, timeout=wait)
            self._counts["accepted"] += 1
        except queue.Full:
            self._counts["dropped"] += 1
            if self._counts["dropped"] == 1:
                self._note_error("takes no more lines; metrics.jsonl is complete")

    def _launch(self) -> subprocess.Popen[str]:
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        environment |= {
            "WANDB_ERROR_REPORTING": "false",
            "WANDB_CACHE_DIR": str(self.folder / "cache"),
        }
        environment.pop("WANDB_SERVICE", None)
        with (self.folder / "worker.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-P", str(Path(__file__).with_name("wandb_worker.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the trainer
            )

    def _first_order(self, run_name: str, run_id: str, config: Mapping[str, Any]) -> dict[str, Any]:
        settings = self.settings
        return {
            "mode": settings.mode,
            "run_dir": str(self.folder.parent),
            "run_name": run_name,
            "run_id": run_id,
            "project": settings.project,
            "entity": settings.entity,
            "group": settings.group,
            "tags": list(settings.tags),
            "config": without_secrets(plain(config)),
            "init_timeout_s": settings.init_timeout_s,
            "finish_timeout_s": settings.finish_timeout_s,
        }

    def _wait_until_admitted(self) -> None:
        """Online, a missing login is told before training; a silent network only delays it."""
        if self.settings.mode != "online":
            return
        self._answered.wait(self.settings.init_timeout_s)
        if self._refusal:
            self._state = "closed"
            self._process.kill()
            self._process.wait(5)
            raise UserError(
                f"tracker.mode=online: W&B refused the run: {self._refusal} Run `wandb login` or "
                "set WANDB_API_KEY; or stay offline and use `wandb sync` later"
            )

    def _feed(self) -> None:
        """Thread: from the queue into the worker's standard input."""
        pipe = self._process.stdin
        assert pipe is not None
        with contextlib.suppress(BrokenPipeError, ValueError), pipe:
            while (line := self._queue.get()) is not None:
                pipe.write(line)
                pipe.flush()

    def _listen(self) -> None:
        """Thread: what the worker reports, until it ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            report = json.loads(line)
            event, text = report["event"], report["text"]
            if event == "refused":
                self._refusal = text
                if self._answered.is_set() or self.settings.mode != "online":
                    self._note_error(text)
            elif event == "error":
                self._note_error(text)
            elif event == "ready" and self._state == "starting":
                self._state = "running"
                if text:  # the address of an online run
                    self._announce(f"W&B: {text}")
            self._answered.set()
        if self._state != "closed":
            self._state = "ended"
            self._note_worker_end()
        self._answered.set()

    def _note_worker_end(self) -> None:
        self._note_error(f"ended early, lines are missing there; see {self.folder / 'worker.log'}")

    def _note_error(self, text: str) -> None:
        with self._lock:
            self._counts["errors"] += 1
            first = self._counts["errors"] == 1
        if first:
            self._announce(f"W&B: {text} (further errors are only counted)")


def without_secrets(value: Any, name: str = "") -> Any:
    """Replace values whose key names a secret, or that equal a secret of the environment."""
    if isinstance(value, dict):
        return {key: without_secrets(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [without_secrets(item, name) for item in value]
    if value is None or not isinstance(value, str):
        return value
    return REDACTED if SECRET_NAME.search(name) or value in _secrets_of_environment() else value


def _secrets_of_environment() -> set[str]:
    return {v for k, v in os.environ.items() if SECRET_NAME.search(k) and len(v) >= 8}


def told_to_wandb(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """What of a line W&B gets: plain values that are known."""
    return {key: value for key, value in plain(metrics).items() if value is not None}


def digest_of(told: Mapping[str, Any]) -> str:
    """The same for lines that differ only in what depends on the clock or the machine."""
    text = compact(dict(sorted(deterministic_view(told).items())))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _line(order: Mapping[str, Any]) -> str:
    return compact(order) + "\n"


def _daemon(target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def _to_standard_error(text: str) -> None:
    print(text, file=sys.stderr)
