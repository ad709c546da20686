"""One rank of `launcher=local`: `python -m selfdistill_cli.cli.worker JOB`, started by nobody else.

JOB is a JSON file with the command line that was given and the resolved configuration.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path

from selfdistill_cli.cli.main import exit_code
from selfdistill_cli.core.errors import LostRank


def main(job: Path) -> int:
    """Train as the rank that the environment names; return the exit code."""
    given = json.loads(job.read_text())
    sys.argv = given["argv"]  # what command.txt records
    threading.Thread(target=stop_with_launcher, daemon=True).start()

    def train() -> int:
        from selfdistill_cli.config.checked import build
        from selfdistill_cli.launching.inline import Inline
        from selfdistill_cli.launching.ranks import LOST
        from selfdistill_cli.launching.settings import InlineSettings
        from selfdistill_cli.tracking.progress import make_display
        from selfdistill_cli.training.settings import TrainSettings

        settings: TrainSettings = build(given["container"], TrainSettings)
        display = make_display(settings.run.max_steps, sys.stdout, None)
        inline = InlineSettings(timeout_s=settings.launcher.timeout_s, jobs=None)  # pyright: ignore
        try:
            return Inline(inline).launch(settings, given["container"], display)
        except LostRank:
            return LOST  # the launcher tells whose end it was, and why

    return exit_code(train)


def stop_with_launcher() -> None:
    """Ask for an orderly stop when the launcher is gone: standard input ends then."""
    os.read(sys.stdin.fileno(), 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    code = main(Path(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(code)
