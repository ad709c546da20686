"""Job files: what ranks that are started elsewhere read, a command line and a configuration."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.training.files import write_text


def write_job(path: Path, container: Mapping[str, Any]) -> None:
    """Write this process's command line and a configuration; raises RunError."""
    # In the order that it has: terms are added up in theirs.
    write_text(path, json.dumps({"argv": sys.argv, "container": container}, indent=1) + "\n")


def read_job(path: Path) -> tuple[list[str], dict[str, Any]]:
    """The command line and the configuration of a job file; raises ConfigError."""
    try:
        given = json.loads(path.read_bytes())
        return given["argv"], given["container"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} cannot be read as a job: {error!r}") from error
