"""From the dotted path in `_target_` to a settings class."""

from __future__ import annotations

import dataclasses
import importlib
from types import ModuleType
from typing import Any

from selfdistill_cli.config.wording import show
from selfdistill_cli.core.errors import ConfigError, did_you_mean
from selfdistill_cli.core.settings import Settings


def find_settings_class(path: Any, expected: type[Any]) -> type[Any]:
    """Import the settings class that a `_target_` names.

    Raises ConfigError if there is none, or if it does not extend `expected`.
    """
    module_name, _, class_name = path.rpartition(".") if isinstance(path, str) else ("", "", "")
    if not module_name:
        raise ConfigError(f"got {show(path)}, expected the dotted path of a settings class")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigError(_no_module(module_name, error)) from error
    except Exception as error:  # whatever a user's module raises at import is the user's to mend
        raise ConfigError(
            f"importing {module_name} failed: {type(error).__name__}: {error}"
        ) from error
    found = getattr(module, class_name, None)
    if found is None:
        raise ConfigError(_no_class(module, class_name))
    if not (isinstance(found, type) and issubclass(found, expected)) or not (
        dataclasses.is_dataclass(found)
    ):
        raise ConfigError(
            f"{path} does not fit here; expected a dataclass that extends "
            f"{expected.__module__}.{expected.__qualname__}"
        )
    return found


def _no_module(module_name: str, error: ModuleNotFoundError) -> str:
    if error.name and not f"{module_name}.".startswith(f"{error.name}."):
        return f"importing {module_name} failed: it imports '{error.name}', which is not installed"
    return (
        f"there is no module '{error.name}' (of {module_name}); a module of your own is found in "
        "the current folder and beside the folder given as --config-dir"
    )


def _no_class(module: ModuleType, class_name: str) -> str:
    known = [
        name
        for name, member in vars(module).items()
        if isinstance(member, type) and issubclass(member, Settings) and member is not Settings
    ]
    return (
        f"module {module.__name__} has no class '{class_name}'{did_you_mean(class_name, known)} "
        f"(settings classes there: {', '.join(known) or 'none'})"
    )
