"""Several runs from one command line: every one is checked before the first one starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins

from selfdistill_cli.config import catalog, overrides, rules
from selfdistill_cli.config.compose import compose
from selfdistill_cli.core.errors import ConfigError, did_you_mean


def _check_plugin(group: str, chosen: str, folders: Sequence[Path]) -> None:
    """Raise ConfigError if neither an installed plug-in of Hydra nor a file has this name."""
    Plugins.instance()  # finds what is installed
    installed = {name.removesuffix(".yaml") for name in ConfigStore.instance().list(group)}
    known = sorted(installed | {path.stem for f in folders for path in f.glob(f"{group}/*.yaml")})
    if chosen not in known:
        kind = group.partition("/")[2]
        raise ConfigError(
            f"{group}: there is no option '{chosen}'{did_you_mean(chosen, known)} (installed: "
            f"{', '.join(known)}); others are plug-ins, pip install hydra-{chosen}-{kind}; without "
            f"{group} cells run as many at once as fit"
        )


def check_sweep(words: Sequence[str], config_dir: str | None, config_name: str) -> list[str]:
    """Check every combination of `-m KEY=A,B`; return the words without repeated choices.

    Raises ConfigError that names the first combination that is wrong. With another sweeper than
    Hydra's basic one the combinations are not known yet, and each run is checked as it starts.
    """
    folders = catalog.config_dirs(config_dir)
    typed = overrides.last_of_each(overrides.parse(words), folders)
    kept = [str(override.input_line) for override in typed]
    for override in typed:
        if override.key_or_group in ("hydra/launcher", "hydra/sweeper"):
            _check_plugin(override.key_or_group, str(override.value()), folders)
    if any(override.key_or_group == "hydra/sweeper" for override in typed):
        return kept
    own = [override for override in typed if not override.is_hydra_override()]
    names: dict[str, str] = {}
    for combination in BasicSweeper.split_arguments(own, None)[0]:
        label = " ".join(combination)
        try:
            composed = compose(combination, config_dir, config_name)
            rules.check(composed.settings)
        except ConfigError as error:
            raise ConfigError(f"in the run {label}:\n{error}") from error
        name = str(composed.settings.run.name)
        if name in names:
            raise ConfigError(
                f"run.name: '{name}' would be the name of two runs, {names[name]} and {label}; "
                "leave run.name out, or make it depend on the swept keys"
            )
        names[name] = label
    return kept
