"""Optional packages: imported when they are chosen, and kept from changing the run."""

from __future__ import annotations

import contextlib
import importlib
import logging
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from selfdistill_cli.core.errors import ConfigError


def load(module: str, key: str, install: str) -> Any:
    """Import a module; raises ConfigError that names the key and the command that installs it.

    Packages that set up logging or seed on import leave both as they were.
    """
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        with own_random({}):
            return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{key}: cannot import {module} ({error}); expected it to be installed: {install}"
        ) from None
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


@contextlib.contextmanager
def own_random(state: dict[str, Any]) -> Iterator[None]:
    """Give code that draws from the global generators a stream of its own.

    `state` keeps the stream between uses; what others draw is as if this had not run.
    """
    outside = random.getstate(), np.random.get_state()
    if state:
        random.setstate(state["python"])
        np.random.set_state(state["numpy"])
    try:
        yield
    finally:
        state.update(python=random.getstate(), numpy=np.random.get_state())
        random.setstate(outside[0])
        np.random.set_state(outside[1])


def seeded(seed: int) -> dict[str, Any]:
    """Return a state for `own_random` that starts at a seed."""
    numbers: Any = np.random.RandomState(seed % 2**32)
    return {"python": random.Random(seed).getstate(), "numpy": numbers.get_state()}
