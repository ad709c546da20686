"""Start several ranks on this machine and watch them: the first that dies takes the job down."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from selfdistill_cli.core.errors import ConfigError, Preempted, RunError, UserError
from selfdistill_cli.launching.jobs import write_job
from selfdistill_cli.launching.ranks import LOST, is_one_of_several
from selfdistill_cli.launching.settings import LocalSettings
from selfdistill_cli.training.settings import TrainSettings

POLL_S = 0.1
GRACE_S = 3.0
"""How long rank 0 has to end by itself after another one did, and to tell what all ranks know."""
LONG_GRACE_S = 30.0
"""The same after an error in the input or a stop on request, which every rank comes to."""
TOLD = (UserError.exit_code, Preempted.exit_code)
MOST_SHOWN = 4000
"""Bytes of a dead rank's output that are shown."""


class Local:
    """Composes once, starts the ranks on the resolved configuration, returns rank 0's exit code."""

    def __init__(self, settings: LocalSettings) -> None:
        self.settings = settings

    def launch(self, settings: TrainSettings, container: Mapping[str, Any], display: Any) -> int:
        """Train; `settings.run.name` is set. Returns the exit code; raises RunError if one died."""
        if is_one_of_several():
            raise ConfigError(
                "launcher=local starts ranks itself, but WORLD_SIZE says that this process is one "
                "of several; use launcher=inline under torchrun or deepspeed"
            )
        display.close()
        with tempfile.TemporaryDirectory(prefix="selfdistill_") as folder:
            job = Path(folder) / "job.json"
            write_job(job, container)
            ranks = Ranks(self.settings.num_processes, job)
            logs = Path(settings.run.root) / str(settings.run.name) / "ranks"
            return ranks.watch(logs)


class Ranks:
    """The processes of one job."""

    def __init__(self, size: int, job: Path):
        self.folder = job.parent
        port = _free_port()
        self.processes = [self._start(rank, size, port, job) for rank in range(size)]

    def _start(self, rank: int, size: int, port: int, job: Path) -> subprocess.Popen[bytes]:
        own = {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }  # fmt: skip
        defaults = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
        early = None if rank == 0 else self._early(rank).open("wb")
        try:
            return subprocess.Popen(
                [sys.executable, "-m", "selfdistill_cli.cli.worker", str(job), "local"],
                env={**defaults, **os.environ, **own},
                stdin=subprocess.PIPE,  # closed by our end, whatever it is: the rank then stops
                stdout=early,
                stderr=early,
                start_new_session=True,  # Ctrl-C reaches the ranks through us, once
            )
        finally:
            if early is not None:
                early.close()

    def _early(self, rank: int) -> Path:
        """What a rank says before it has a log in the run directory."""
        return self.folder / f"rank_{rank}.txt"

    def watch(self, logs: Path) -> int:
        """Wait for the end; return the exit code. Raises RunError if a rank died."""
        before = {r: _size(_log(logs, r)) for r in range(len(self.processes))}
        previous = {
            number: signal.signal(number, self._forward)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            first = self._first_failure()
            if first is None:
                return 0
            code = self.processes[0].returncode
            if code is not None and code > 0 and code != LOST:
                return code  # rank 0 has told why
            raise RunError(self._obituary(first, logs, before))
        finally:
            self._end()
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _first_failure(self) -> int | None:
        """The rank that failed first, None if all ended well; rank 0 had time to tell."""
        while True:
            codes = [process.poll() for process in self.processes]
            failed = [rank for rank, code in enumerate(codes) if code]
            if failed:
                self._wait_for_first(LONG_GRACE_S if codes[failed[0]] in TOLD else GRACE_S)
                return next((rank for rank in failed if codes[rank] != LOST), failed[0])
            if None not in codes:
                return None
            time.sleep(POLL_S)

    def _wait_for_first(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self.processes[0].poll() is None and time.monotonic() < end:
            time.sleep(POLL_S)

    def _obituary(self, rank: int, logs: Path, before: Mapping[int, int]) -> str:
        code = self.processes[rank].returncode
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        said = ""
        if rank > 0:
            said = _tail(self._early(rank), 0) + _tail(_log(logs, rank), before[rank])
        told = f" It said:\n{said}" if said else ""
        kept = f" (all of it is in {_log(logs, rank)})" if said else ""
        return (
            f"rank {rank} {how}; the other ranks were ended and the last checkpoint is intact: the "
            f"same command continues from it.{told}{kept}"
        )

    def _forward(self, number: int, frame: FrameType | None) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(number)

    def _end(self) -> None:
        """End every process that is left, with all that it has started."""
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        for process in self.processes:
            process.wait()
            if process.stdin is not None:
                process.stdin.close()


def _log(logs: Path, rank: int) -> Path:
    return logs / f"rank_{rank}.log"


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _tail(path: Path, start: int) -> str:
    """The end of what was written to a file since it had `start` bytes."""
    if not path.is_file():
        return ""
    return path.read_bytes()[start:][-MOST_SHOWN:].decode(errors="replace")


def _free_port() -> int:
    """A port of the loopback interface that nobody uses now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


