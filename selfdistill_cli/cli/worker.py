"""One rank of a job: `python -m selfdistill_cli.cli.worker JOB LAUNCHER`, started by a launcher.

JOB is a JSON file with the command line that was given and the resolved configuration. LAUNCHER
says who started the rank, and so who stops it and tells its end:

* `local`: standard input ends when the launcher is gone; the launcher tells why a rank ended.
* `slurm`: Slurm signals the rank, from its first moment on; each rank tells its own end.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from selfdistill_cli.cli.main import exit_code
from selfdistill_cli.core.errors import LostRank
from selfdistill_cli.training.interrupts import hold_back


def main(job: Path, launcher: str) -> int:
    """Train as the rank that the environment names; return the exit code."""
    if launcher == "slurm":
        hold_back()  # before anything slow: a request that comes now is heard in the first step
        return exit_code(lambda: _train(job))
    assert launcher == "local", launcher
    threading.Thread(target=stop_with_launcher, daemon=True).start()
    return exit_code(lambda: _local(job))


def _local(job: Path) -> int:
    from selfdistill_cli.launching.ranks import LOST

    try:
        return _train(job)
    except LostRank:
        return LOST  # the launcher tells whose end it was, and why


def _train(job: Path) -> int:
    from selfdistill_cli.config.checked import build
    from selfdistill_cli.launching.inline import Inline
    from selfdistill_cli.launching.jobs import read_job
    from selfdistill_cli.launching.settings import InlineSettings
    from selfdistill_cli.tracking.progress import make_display
    from selfdistill_cli.training.settings import TrainSettings

    sys.argv, container = read_job(job)  # what command.txt records
    settings: TrainSettings = build(container, TrainSettings)
    display = make_display(settings.run.max_steps, sys.stdout, None)
    inline = InlineSettings(timeout_s=settings.launcher.timeout_s, jobs=None)  # pyright: ignore
    return Inline(inline).launch(settings, container, display)


def stop_with_launcher() -> None:
    """Ask for an orderly stop when the launcher is gone: standard input ends then."""
    os.read(sys.stdin.fileno(), 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    code = main(Path(sys.argv[1]), sys.argv[2])
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(code)
