"""Lets Hydra find the plug-in `hydra/sweeper=selfdistill`.

`train -m` needs no sweeper and calls `start.sweep` by itself. The plug-in is for command lines and
configurations that name one, as those of other projects do.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path

from hydra.core.plugins import Plugins

from selfdistill_cli.core.errors import SelfDistillError

FOLDER = Path(__file__).parent / "plugins"


@dataclass(kw_only=True)
class Asked:
    """What the command says to the plug-in, which Hydra builds, and what comes back."""

    config_dir: str | None = None
    """The user's folder."""
    config_name: str = "train"
    """The primary configuration."""
    error: SelfDistillError | None = None
    """What the user can mend: told by the command, because Hydra would show a traceback."""


asked = Asked()


def register(config_dir: str | None, config_name: str) -> None:
    """Let Hydra find the sweeper, which composes with the folder and the name given."""
    asked.config_dir, asked.config_name = config_dir, config_name
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    Plugins.instance().register(importlib.import_module("hydra_plugins.selfdistill").LedgerSweeper)
