"""Optional packages: found when they are chosen, told how to install, kept from changing a run."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import random
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from selfdistill_cli.core.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Package:
    """A package that some choices need and the others do not."""

    module: str
    """What Python calls it."""
    install: str
    """The command that installs it, with the extra of this project where there is one."""
    otherwise: str = ""
    """What to choose instead, if there is something."""

    def load(self, key: str, part: str = "") -> Any:
        """Import the package, or a module in it; raises ConfigError that begins with `key`.

        Packages that set up logging or seed on import leave both as they were.
        """
        name = f"{self.module}.{part}" if part else self.module
        root = logging.getLogger()
        handlers, level = list(root.handlers), root.level
        try:
            with own_random({}):
                return importlib.import_module(name)
        except ImportError as error:
            raise self.missing(key, str(error)) from None
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)

    def require(self, key: str) -> list[Path]:
        """Return the package's folders without importing it; raises ConfigError."""
        try:
            spec = importlib.util.find_spec(self.module)
        except (ImportError, ValueError):
            spec = None
        if spec is None:
            raise self.missing(key, f"no module named '{self.module}'")
        return [Path(folder) for folder in spec.submodule_search_locations or ()]

    def missing(self, key: str, found: str) -> ConfigError:
        """Return the error of a package that cannot be used."""
        other = f", or {self.otherwise}" if self.otherwise else ""
        return ConfigError(
            f"{key}: cannot import {self.module} ({found}); expected it to be installed: "
            f"{self.install}{other}"
        )


@contextlib.contextmanager
def own_random(state: dict[str, Any]) -> Generator[None, None, None]:
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
