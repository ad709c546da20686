"""config.yaml of a run directory: read, changed by words, checked. Nothing is composed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.types import Override

from selfdistill_cli.config import overrides
from selfdistill_cli.config.checked import build
from selfdistill_cli.config.compose import compose
from selfdistill_cli.core.errors import ConfigError, DataError, did_you_mean
from selfdistill_cli.training.settings import TrainSettings


def load_resolved(path: Path) -> TrainSettings:
    """Read and check the config.yaml of a run directory.

    Raises DataError if it cannot be read and ConfigError if it does not fit this version.
    """
    return checked(read_container(path), path)


def read_container(path: Path) -> dict[str, Any]:
    """The configuration as nested mappings; raises DataError."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("found no settings in it")
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise DataError(
            f"{path}: cannot be read as a configuration: {error}; logs/attempt_<n>/config.yaml is "
            "a copy"
        ) from error
    return found


def checked(container: Mapping[str, Any], path: Path, words: Sequence[str] = ()) -> TrainSettings:
    """The settings that a container read from `path` and changed by `words` describes.

    Raises ConfigError.
    """
    try:
        return build(container, TrainSettings)
    except ConfigError as error:
        what = " with ".join([str(path), *([" ".join(words)] if words else [])])
        raise ConfigError(
            f"{what} does not fit this version of selfdistill:\n{error}\n"
            "If the file was edited, logs/attempt_<n>/config.yaml is a copy. If another version "
            "wrote it, give the run's `selfdistill train` command again, with its run.name: it "
            "shows what else differs, goes on with the run and writes the file anew"
        ) from error


def changed(
    container: Mapping[str, Any], words: Sequence[str], config_dir: str | None = None
) -> dict[str, Any]:
    """A copy in which the words `KEY=VALUE` replaced values of keys that exist.

    `GROUP=OPTION`, such as launcher=inline, replaces a whole group by the option's own values.
    Raises ConfigError for a word that cannot be read and for a key that does not exist.
    """
    result = deepcopy(dict(container))
    for override in overrides.parse(words):
        key = override.key_or_group
        if override.is_add() or override.is_delete() or override.is_sweep_override():
            raise ConfigError(f"'{override.input_line}': expected KEY=VALUE with one value")
        *groups, last = key.split(".")
        holder = result
        for name in groups:
            holder = _entry(holder, name, key)
        is_group = isinstance(_entry(holder, last, key), dict) and not groups
        is_option = is_group and isinstance(override.value(), str)
        holder[last] = _option(override, config_dir) if is_option else override.value()
    return result


def _option(override: Override, config_dir: str | None) -> Any:
    """What an option of a group says by itself."""
    composed = compose([str(override.input_line)], config_dir)
    return composed.container[override.key_or_group]


def _entry(holder: Any, name: str, key: str) -> Any:
    if not isinstance(holder, dict) or name not in holder:
        known = list(holder) if isinstance(holder, dict) else []
        raise ConfigError(f"{key}: the run has no such key{did_you_mean(name, known)}")
    return holder[name]
