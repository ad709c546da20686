"""One cell of a sweep: `python -m selfdistill_cli.cli.cell JOB`, started by its keeper.

JOB is a JSON file with the resolved configuration and what command.txt records.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

from selfdistill_cli.cli.main import exit_code
from selfdistill_cli.cli.worker import stop_with_launcher


def main(job: Path) -> int:
    """Train the cell with its launcher; return the exit code."""
    given = json.loads(job.read_text())
    sys.argv = given["argv"]
    threading.Thread(target=stop_with_launcher, daemon=True).start()

    def train() -> int:
        from selfdistill_cli.cli.train import launch
        from selfdistill_cli.config import catalog
        from selfdistill_cli.config.checked import build
        from selfdistill_cli.training.settings import TrainSettings

        catalog.extend_import_path(given["config_dir"])
        return launch(build(given["container"], TrainSettings), given["container"])

    return exit_code(train)


if __name__ == "__main__":
    code = main(Path(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(code)
