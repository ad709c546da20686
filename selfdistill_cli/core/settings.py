"""Settings: what a YAML file under conf/ fills in.

A settings class is a frozen keyword-only dataclass whose fields are the legal keys, with their
types and meaning. It lives in a module that imports nothing heavy, so that a configuration is
checked before torch is loaded. `implementation` names the class that does the work; `build`
imports it and calls it with the settings first.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Literal

from selfdistill_cli.core.errors import FieldError
from selfdistill_cli.core.hints import HintKind


def in_range(settings: Any, low: float, high: float, *fields: str) -> None:
    """Raise FieldError unless each of the fields is a number in [low, high] (null is passed over).

    For `__post_init__` of settings classes.
    """
    for name in fields:
        value = getattr(settings, name)
        if isinstance(value, int | float) and not low <= value <= high:
            bound = f"a number from {low:g} to {high:g}" if high < inf else f"at least {low:g}"
            raise FieldError(name, value, bound)


class Settings:
    """Base of all settings dataclasses that name an implementation."""

    implementation: ClassVar[str] = ""

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Import the implementation and construct it as `Implementation(self, *args, **kwargs)`."""
        module, _, name = self.implementation.partition(":")
        return getattr(importlib.import_module(module), name)(self, *args, **kwargs)


@dataclass(frozen=True, kw_only=True)
class ViewSettings(Settings):
    """Under which weights and with which privileged text the sampled tokens are scored."""

    weights: Literal["policy", "slow_copy", "frozen", "base"]
    """The student as it is now, the copy that `method.sync` moves, weights that never change, or
    the base model under the adapters."""
    path: str | None
    """First weights of a slow copy, or all of a frozen view: a folder, or RUN[:best|:latest|:STEP]
    (same tokenizer); null is the run's initial policy, trained adapters included."""
    hints: list[HintKind]
    """Privileged text added to the prompt, in this order; empty scores the student's own prompt."""
