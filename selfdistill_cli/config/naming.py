"""The default name of a run: readable, and the same for the same command."""

from __future__ import annotations

import fnmatch
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from selfdistill_cli.config.checked import plain
from selfdistill_cli.training.run_directory import MAY_CHANGE
from selfdistill_cli.training.settings import TrainSettings


def default_name(settings: TrainSettings, method: str, env: str) -> str:
    """Return `<method>-<env>-s<seed>-<6 hex>`.

    The hex is a hash of all settings except those that may change between two attempts of the
    same run (`MAY_CHANGE`), so that the same command again, or one with more steps, continues it.
    """
    kept = {
        key: value
        for key, value in leaves(plain(settings))
        if not any(fnmatch.fnmatchcase(key, pattern) for pattern in MAY_CHANGE)
    }
    text = json.dumps(kept, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:6]
    words = [word.replace("/", "_") for word in (method, env)]
    return "-".join([*words, f"s{settings.seed}", digest])


def name_of_trial(name: str, root: str, run_id: str) -> str:
    """Return `<name>-<run_id>` for a trial of a W&B sweep, or the directory it has already.

    W&B's agent starts a trial again with the same id: it must find its checkpoints, and be told
    if its values are others now.
    """
    begun = sorted(path.parent.name for path in Path(root).glob(f"*-{run_id}/config.yaml"))
    return begun[0] if begun else f"{name}-{run_id}"


def leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) of everything that is not a mapping with entries."""
    if isinstance(node, Mapping) and node:
        for name, value in node.items():
            yield from leaves(value, f"{prefix}.{name}" if prefix else str(name))
    else:
        yield prefix, node
