"""Building parts, shipped or a user's: what is missing is named before a run starts."""

from __future__ import annotations

import importlib
from typing import Any

from selfdistill_cli.core.errors import ConfigError, did_you_mean
from selfdistill_cli.core.settings import Settings


def build_part(key: str, settings: Settings, protocol: type[Any], *args: Any) -> Any:
    """Build the part that `settings` names and compare it with the protocol of its place.

    `key` is where the settings stand. Raises ConfigError if the implementation cannot be found or
    lacks something.
    """
    _find(key, settings)
    part = settings.build(*args)
    expect_complete(key, part, protocol)
    return part


def expect_complete(key: str, part: Any, protocol: type[Any]) -> None:
    """Raise ConfigError that names every member of the protocol that the part does not have."""
    missing = [name for name in members(protocol) if not hasattr(part, name)]
    if missing:
        own = [name for name in dir(part) if not name.startswith("_")]
        named = ", ".join(f"{name}{did_you_mean(name, own)}" for name in missing)
        raise ConfigError(
            f"{key}: {type(part).__module__}.{type(part).__qualname__} has no {named}; expected "
            f"everything that core.protocols.{protocol.__name__} lists: "
            f"{', '.join(members(protocol))}"
        )


def members(protocol: type[Any]) -> list[str]:
    """Names of the methods and attributes that a protocol asks for, inherited ones first."""
    found: dict[str, None] = {}
    for owner in reversed(protocol.__mro__):
        if getattr(owner, "_is_protocol", False):
            names = [*getattr(owner, "__annotations__", {}), *vars(owner)]
            found |= {n: None for n in names if n == "__call__" or not n.startswith("_")}
    return list(found)


def _find(key: str, settings: Settings) -> None:
    """Import the implementation; raises ConfigError if there is none."""
    where = f"{type(settings).__module__}.{type(settings).__qualname__}.implementation"
    module_name, _, name = settings.implementation.partition(":")
    if not module_name or not name:
        raise ConfigError(f"{key}: {where} is '{settings.implementation}'; expected 'module:Class'")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever a user's module raises at import is the user's to mend
        raise ConfigError(
            f"{key}: {where}: importing {module_name} failed: {type(error).__name__}: {error}"
        ) from error
    if not hasattr(module, name):
        near = did_you_mean(name, vars(module))
        raise ConfigError(f"{key}: {where}: module {module_name} has no '{name}'{near}")
