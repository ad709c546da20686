"""`python drive.py WORDS`: `selfdistill train -m WORDS` with cells that do not train (stand_in)."""

from __future__ import annotations

import functools
import os
import sys

from selfdistill_cli.cli.main import exit_code
from selfdistill_cli.sweeping.folder import Command
from selfdistill_cli.sweeping.processes import LocalStarter
from selfdistill_cli.sweeping.start import sweep

if __name__ == "__main__":
    command = Command(words=tuple(sys.argv[1:]), config_dir=None, config_name="train")
    starter = functools.partial(LocalStarter, module=os.environ.get("CELL", "stand_in"))
    sys.exit(exit_code(lambda: sweep(command, starter=starter)))
