"""From what was typed to checked settings: Hydra composes, `checked.build` checks."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from selfdistill_cli.config import catalog, overrides, provenance
from selfdistill_cli.config.checked import build
from selfdistill_cli.config.naming import default_name, name_of_trial
from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.tracking.wandb_trial import current_trial
from selfdistill_cli.training.settings import TrainSettings

DERIVED_NAME = "method, env, seed and a hash of the configuration"
OF_TRIAL = "the id of the trial that W&B's agent started"
CHOSEN_ENV = "the choice of env"


@dataclass(frozen=True, kw_only=True)
class Composed:
    """A configuration, complete and checked key by key."""

    settings: TrainSettings
    """The checked settings; `run.name` is set."""
    container: dict[str, Any]
    """The same as plain nested mappings, interpolations resolved: what config.yaml holds."""
    origins: Mapping[str, str]
    """Where the value of each leaf came from, by dotted key."""
    choices: Mapping[str, str]
    """The chosen option of each group."""


def compose(
    words: Sequence[str], config_dir: str | None = None, config_name: str = catalog.PRIMARY
) -> Composed:
    """Compose `conf/<config_name>.yaml` with typed overrides and check the result.

    `config_dir` is a folder of the user that adds options to the shipped ones. The last choice of
    a group wins. Raises ConfigError.
    """
    catalog.extend_import_path(config_dir)
    folders = catalog.config_dirs(config_dir)
    typed = read_words(words, folders)
    config, files = compose_unchecked(typed, folders, config_name)
    choices = chosen(config)
    container = resolved(without_hydra(config))
    follows_env = follow_env(container, choices)
    values = [o for o in typed if not overrides.is_choice(o, folders) and not o.is_delete()]
    origin = provenance.origins(container, files, values, folders)
    if follows_env:
        origin["policy.weights"] = CHOSEN_ENV
    try:
        settings: TrainSettings = build(container, TrainSettings)
    except ConfigError as error:
        raise ConfigError(provenance.with_files(str(error), origin)) from error
    name, trial = settings.run.name, current_trial()
    if name is None:
        method = str(choices.get("method", getattr(settings.method, "name", "method")))
        name = default_name(settings, method, str(choices.get("env", "env")))
        origin["run.name"] = DERIVED_NAME
    if trial is not None:
        name = name_of_trial(name, settings.run.root, trial.run_id)
        origin["run.name"] = OF_TRIAL
    settings = dataclasses.replace(settings, run=dataclasses.replace(settings.run, name=name))
    container["run"]["name"] = name
    return Composed(settings=settings, container=container, origins=origin, choices=choices)


def follow_env(container: Mapping[str, Any], choices: Mapping[str, str]) -> bool:
    """Let a policy whose `weights` are left open take those of the chosen environment.

    Returns whether it did. The name is then part of config.yaml, so that a run stays what it was.
    """
    policy = container.get("policy")
    if not isinstance(policy, dict) or policy.get("weights", "") is not None:
        return False
    policy["weights"] = choices.get("env")
    return True


def read_words(words: Sequence[str], folders: Sequence[Path]) -> list[Override]:
    """Parse what was typed; the last choice of a group wins. Raises ConfigError."""
    typed = overrides.last_of_each(overrides.parse(words), folders)
    overrides.check_groups(typed, folders)
    return typed


def compose_unchecked(
    typed: Sequence[Override], folders: Sequence[Path], config_name: str
) -> tuple[DictConfig, list[tuple[str, str]]]:
    """Return what Hydra composes and the files it is made of; raises ConfigError."""
    try:
        return _compose_with_hydra(typed, folders, config_name)
    except (HydraException, ValueError) as error:  # Hydra checks some overrides with a ValueError
        raise diagnosis(error, typed, folders, config_name) from error


def _compose_with_hydra(
    typed: Sequence[Override], folders: Sequence[Path], config_name: str
) -> tuple[DictConfig, list[tuple[str, str]]]:
    """Return the composed configuration and the files it is made of, in order."""
    words = _words(typed, folders)
    with _loader(folders[0]) as loader:
        config = loader.load_configuration(config_name, words, RunMode.RUN, from_shell=False)
        defaults = loader.compute_defaults_list(config_name, words, RunMode.RUN).defaults
    return config, [(d.config_path, d.package or "") for d in defaults if d.config_path]


def load(typed: Sequence[Override], folders: Sequence[Path], config_name: str) -> DictConfig:
    """What Hydra composes, without the files it is made of, which takes half as long again.

    Raises HydraException, ValueError; `diagnosis` explains them.
    """
    with _loader(folders[0]) as loader:
        words = _words(typed, folders)
        return loader.load_configuration(config_name, words, RunMode.RUN, from_shell=False)


def _words(typed: Sequence[Override], folders: Sequence[Path]) -> list[str]:
    words = [str(override.input_line) for override in typed]
    return [*words, *(f"hydra.searchpath=['file://{folder}']" for folder in folders[1:])]


def chosen(config: DictConfig) -> dict[str, str]:
    """The chosen option of each group."""
    return {k: v for k, v in config.hydra.runtime.choices.items() if not k.startswith("hydra/")}


@contextlib.contextmanager
def _loader(folder: Path) -> Iterator[ConfigLoader]:
    """Hydra's loader for a folder; puts back the Hydra that was active, as in a multirun."""
    active = GlobalHydra.instance()
    before, active.hydra = active.hydra, None
    try:
        with initialize_config_dir(version_base="1.3", config_dir=str(folder)):
            yield GlobalHydra.instance().config_loader()
    finally:
        GlobalHydra.instance().hydra = before


def diagnosis(
    error: Exception, typed: Sequence[Override], folders: Sequence[Path], config_name: str
) -> ConfigError:
    """Turn Hydra's error into one that names the key, what is known there and the nearest name."""
    choices = [o for o in typed if overrides.is_choice(o, folders)]
    if len(choices) < len(typed):
        try:
            config, _ = _compose_with_hydra(choices, folders, config_name)
        except (HydraException, ValueError) as without_values:
            return _message(without_values)
        bare = OmegaConf.to_container(config, resolve=False)
        assert isinstance(bare, dict)
        problems = overrides.unknown_keys(typed, {str(k): v for k, v in bare.items()}, folders)
        if problems:
            return ConfigError("\n".join(problems))
    return _message(error)


def _message(error: Exception) -> ConfigError:
    reasons = [str(error), *([str(error.__cause__)] if error.__cause__ else [])]
    return ConfigError("\n".join(reason.strip() for reason in reasons if reason.strip()))


def without_hydra(config: DictConfig) -> DictConfig:
    """The configuration itself, after Hydra's own node was taken off."""
    with open_dict(config):
        config.pop("hydra")
    return config


def resolved(config: DictConfig) -> dict[str, Any]:
    """Nested mappings, interpolations resolved. Raises ConfigError."""
    try:
        container = OmegaConf.to_container(config, resolve=True, throw_on_missing=False)
    except OmegaConfBaseException as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"{error.full_key or 'the configuration'}: cannot be resolved: {reason}; expected "
            "${KEY} with the full dotted name of another setting"
        ) from error
    assert isinstance(container, dict)
    return {str(name): value for name, value in container.items()}
