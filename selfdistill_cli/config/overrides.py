"""What was typed: `method=gear optim.lr=1e-4`. Read, repeated choices dropped, mistakes named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from selfdistill_cli.config import catalog
from selfdistill_cli.config.wording import show
from selfdistill_cli.core.errors import ConfigError, did_you_mean
from selfdistill_cli.tracking.wandb_trial import current_trial

SHORTHANDS = {"env.sandbox": "env.sandbox.level"}
"""Keys that hold several settings, and the one of them that `KEY=WORD` means."""


def written_out(word: str) -> str:
    """Return `env.sandbox.level=process` for `env.sandbox=process`; other words as they are.

    In a trial of a W&B sweep `None` is null: its agent writes values as Python shows them.
    """
    key, equals, value = word.partition("=")
    if value == "None" and current_trial() is not None:
        return f"{key}=null"
    if key in SHORTHANDS and equals and not value.startswith(("{", "$", "'{", '"{')):
        return f"{SHORTHANDS[key]}={value}"
    return word


def parse(words: Sequence[str]) -> list[Override]:
    """Parse words of the form `KEY=VALUE`; raises ConfigError that names the bad word."""
    parser = OverridesParser.create()
    parsed: list[Override] = []
    for word in words:
        try:
            parsed.extend(parser.parse_overrides([written_out(word)]))
        except HydraException as error:
            reason = str(error).split("\nSee https")[0].replace("\n", " ")
            raise ConfigError(
                f"'{word}' cannot be read; expected KEY=VALUE, quoted for the shell where VALUE "
                f"has spaces or brackets, for example 'eval.hints=[answer]'. Reason: {reason}"
            ) from error
        if not parsed[-1].key_or_group:
            raise ConfigError(f"'{word}' has no key; expected KEY=VALUE")
    return parsed


def last_of_each(overrides: Sequence[Override], folders: Sequence[Path]) -> list[Override]:
    """Drop all but the last choice of each group, so that a repeated choice is not an error."""
    groups = set(catalog.groups(folders))
    last = {o.get_key_element(): i for i, o in enumerate(overrides) if o.key_or_group in groups}
    return [o for i, o in enumerate(overrides) if last.get(o.get_key_element(), i) == i]


def check_groups(overrides: Sequence[Override], folders: Sequence[Path]) -> None:
    """Raise ConfigError for options that a group does not have, all of them together."""
    groups = catalog.groups(folders)
    problems: list[str] = []
    for override in overrides:
        if override.is_hydra_override() or override.is_delete():
            continue
        group, slashed = override.key_or_group, override.key_or_group.replace(".", "/")
        if group in groups:
            problems.extend(_unknown_options(override, catalog.options(folders, group)))
        elif slashed in groups and isinstance(override.value(), str):
            problems.append(
                f"{group}: is a group; choose it with a slash: {slashed}={override.value()}"
            )
    if problems:
        raise ConfigError("\n".join(problems))


def _unknown_options(override: Override, known: Sequence[str]) -> list[str]:
    if override.is_sweep_override():
        word = override.input_line
        return [
            f"{override.key_or_group}: '{word}' names several options; add -m to run each of them"
        ]
    value = override.value()
    chosen = value if isinstance(value, list) else [value]
    group = override.key_or_group
    if value is None:
        return [
            f"{group}: got null, expected one of the options {', '.join(known)}; for the default "
            "leave it out"
        ]
    return [
        f"{group}: there is no option '{option}'{did_you_mean(str(option), known)} "
        f"(options: {', '.join(known)})"
        for option in chosen
        if str(option) not in known
    ]


def is_choice(override: Override, folders: Sequence[Path]) -> bool:
    """Whether an override chooses an option of a group (or configures Hydra itself)."""
    return override.is_hydra_override() or override.key_or_group in catalog.groups(folders)


def unknown_keys(
    overrides: Sequence[Override], container: Mapping[str, Any], folders: Sequence[Path]
) -> list[str]:
    """Messages about overrides whose key does not exist in a composed container."""
    found: list[str] = []
    for override in overrides:
        adds = override.is_add() or override.is_force_add()
        if adds or is_choice(override, folders):
            continue
        key = override.key_or_group
        problem = _unknown_key(key, container, folders)
        if problem is not None:
            found.append(problem)
        elif not override.is_delete() and not override.is_sweep_override():
            found += _unknown_names(key, override.value(), container, folders)
    return found


def _unknown_names(
    key: str, value: Any, container: Mapping[str, Any], folders: Sequence[Path]
) -> list[str]:
    """Messages about names in a typed mapping, `reward.weights={sucess: 1}`, that do not exist."""
    found: list[str] = []
    for name, inner in value.items() if isinstance(value, Mapping) else ():
        below = f"{key}.{name}"
        problem = _unknown_key(below, container, folders)
        if problem is None:
            found += _unknown_names(below, inner, container, folders)
        else:
            found.append(f"{problem}; a new name is added with +{below}=VALUE")
    return found


def _unknown_key(key: str, container: Mapping[str, Any], folders: Sequence[Path]) -> str | None:
    node: Any = container
    parts = key.split(".")
    for i, part in enumerate(parts):
        if isinstance(node, Mapping) and part in node:
            node = node[part]
            continue
        before = ".".join(parts[:i])
        if not isinstance(node, Mapping):
            return f"{key}: {before} is {show(node)} here and has no settings of its own"
        known = [name for name in node if name not in ("_target_", "hydra")]
        if not before:
            names = sorted({*known, *catalog.groups(folders)})
            return (
                f"{key}: there is no such group or setting{did_you_mean(part, names)} "
                f"(known: {', '.join(names)})"
            )
        place = f"{before} has no setting '{part}'"
        return f"{key}: {place}{did_you_mean(part, known)} (known: {', '.join(known)})"
    return None
