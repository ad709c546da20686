"""Prove exact resume on a configuration: train straight, train killed, compare every byte."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from selfdistill_cli.core.errors import RunError
from selfdistill_cli.tracking.metrics_file import read
from selfdistill_cli.training.state_compare import compare_runs

POLL_S = 0.01
SHOWN_LINES = 15
"""Of a run that failed, the last lines that are shown."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One killed and continued run against the straight one."""

    killed_after: int
    """The step whose line was on disk when the run was killed."""
    differences: dict[str, str | None]
    """Part of the state -> None if equal, else where it differs."""

    @property
    def exact(self) -> bool:
        """Whether nothing differs."""
        return not any(self.differences.values())


class Rehearsal:
    """Runs of one configuration in a folder of their own; `words` are the user's overrides."""

    def __init__(
        self, words: Sequence[str], folder: Path, steps: int, timeout_s: float = 3600.0
    ):
        self.folder = folder
        self.steps = steps
        self.timeout_s = timeout_s
        self.words = [
            *words, f"run.root={folder}", f"run.max_steps={steps}", "checkpoint.every=1",
            f"checkpoint.keep={steps}", "run.trajectories_every=1", "tracker=none",
        ]  # fmt: skip

    def straight(self) -> None:
        """Train without a break. Raises RunError with the end of its output."""
        self._finish(self._start("straight"), "straight")

    def killed_after(self, step: int) -> Verdict:
        """Kill -9 as soon as the step's line is written, continue, and compare."""
        name = f"killed_{step}"
        process = self._start(name)
        self._kill_after(process, name, step)
        self._finish(self._start(name), name)
        found = compare_runs(self.folder / "straight", self.folder / name, self.steps)
        return Verdict(killed_after=step, differences=found)

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "selfdistill_cli", "train", *self.words, f"run.name={name}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that all its processes can be killed together
            )

    def _kill_after(self, process: subprocess.Popen[bytes], name: str, step: int) -> None:
        end = time.monotonic() + self.timeout_s
        metrics = self.folder / name / "metrics.jsonl"
        while process.poll() is None and time.monotonic() < end:
            if metrics.is_file() and max((x["step"] for x in read(metrics)), default=0) >= step:
                break
            time.sleep(POLL_S)
        ended = process.poll() is not None
        _kill(process)
        if ended:
            raise RunError(
                f"the run {name} ended before it could be killed after step {step}:\n"
                f"{self._last_lines(name)}"
            )

    def _finish(self, process: subprocess.Popen[bytes], name: str) -> None:
        try:
            code = process.wait(self.timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _kill(process)
        if code != 0:
            how = "did not end in time" if code is None else f"failed with exit code {code}"
            raise RunError(f"the run {name} {how}:\n{self._last_lines(name)}")

    def _last_lines(self, name: str) -> str:
        text = (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-SHOWN_LINES:])


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a run and every process it started that is still in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
