"""Flags of `selfdistill train`: a few of our own, the rest is Hydra's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from selfdistill_cli.core.errors import UserError, did_you_mean

HYDRA_FLAGS: dict[str, bool] = {
    "--cfg": True,
    "-c": True,
    "--resolve": False,
    "--package": True,
    "-p": True,
    "--info": True,
    "-i": True,
    "--multirun": False,
    "-m": False,
    "--hydra-help": False,
    "--experimental-rerun": True,
}
"""Flags that are handed to Hydra, and whether a value follows."""

OWN_FLAGS: dict[str, bool] = {
    "--help": False,
    "-h": False,
    "--dry-run": False,
    "--config-dir": True,
    "-cd": True,
    "--config-name": True,
    "-cn": True,
}
"""Flags that are understood here, and whether a value follows."""


@dataclass(kw_only=True)
class TrainArguments:
    """A command line of `selfdistill train`, taken apart."""

    words: list[str] = field(default_factory=list)
    """Overrides, `KEY=VALUE`."""
    hydra_flags: list[str] = field(default_factory=list)
    """Flags for Hydra, with their values."""
    config_dir: str | None = None
    """A folder of the user that adds to conf."""
    config_name: str = "train"
    """The primary configuration."""
    help: bool = False
    """Show help and stop."""
    dry_run: bool = False
    """Compose, check, print, touch nothing."""

    @property
    def multirun(self) -> bool:
        """Whether several runs were asked for."""
        return "-m" in self.hydra_flags or "--multirun" in self.hydra_flags


def parse(argv: Sequence[str]) -> TrainArguments:
    """Take a command line apart; raises UserError for an unknown flag or a missing value."""
    found = TrainArguments()
    rest = iter(argv)
    for word in rest:
        if not word.startswith("-"):
            found.words.append(word)
            continue
        flag, equals, value = word.partition("=")
        if flag not in HYDRA_FLAGS and flag not in OWN_FLAGS:
            near = did_you_mean(flag, [*OWN_FLAGS, *HYDRA_FLAGS])
            raise UserError(f"there is no flag {flag}{near} (selfdistill train --help lists them)")
        if (HYDRA_FLAGS | OWN_FLAGS)[flag] and not equals:
            value = _value(flag, rest, "all" if flag in ("--info", "-i") else None)
        _note(found, flag, value, word)
    return found


def names_and_keys(
    argv: Sequence[str], command: str, known: Sequence[str]
) -> tuple[list[str], dict[str, str], str | None]:
    """Sort the words of a command on runs: names, KEY=VALUE of known keys, --config-dir.

    Raises UserError for another flag or key.
    """
    names: list[str] = []
    typed: dict[str, str] = {}
    config_dir: str | None = None
    words = iter(argv)
    for word in words:
        key, equals, value = word.partition("=")
        if key == "--config-dir":
            config_dir = value if equals else next(words, None)
        elif word.startswith("-"):
            near = did_you_mean(key, ["--config-dir", "--help"])
            raise UserError(f"there is no flag {key}{near}")
        elif not equals:
            names.append(word)
        elif key not in known:
            near = did_you_mean(key, known)
            raise UserError(f"{command} has no argument '{key}'{near} (known: {', '.join(known)})")
        else:
            typed[key] = value
    return names, typed, config_dir


def _note(found: TrainArguments, flag: str, value: str, word: str) -> None:
    if flag in ("-h", "--help"):
        found.help = True
    elif flag == "--dry-run":
        found.dry_run = True
    elif flag in ("-cd", "--config-dir"):
        found.config_dir = value
    elif flag in ("-cn", "--config-name"):
        found.config_name = value
    else:
        found.hydra_flags.extend([flag, value] if HYDRA_FLAGS[flag] else [word])


def _value(flag: str, rest: Iterator[str], default: str | None) -> str:
    value = next(rest, default)
    if value is None or "=" in value:
        raise UserError(f"{flag}: expected a value after it, got {value or 'nothing'}")
    return value
