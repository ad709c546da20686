"""Settings: what a YAML file under conf/ fills in.

A settings class is a frozen keyword-only dataclass whose fields are the legal keys, with their
types and meaning. It lives in a module that imports nothing heavy, so that a configuration is
checked before torch is loaded. `implementation` names the class that does the work; `build`
imports it and calls it with the settings first.
"""

from __future__ import annotations

import importlib
from typing import Any, ClassVar


class Settings:
    """Base of all settings dataclasses that name an implementation."""

    implementation: ClassVar[str] = ""

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Import the implementation and construct it as `Implementation(self, *args, **kwargs)`."""
        module, _, name = self.implementation.partition(":")
        return getattr(importlib.import_module(module), name)(self, *args, **kwargs)
