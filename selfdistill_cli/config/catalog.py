"""Which configuration folders, groups and options there are. Reads file names only."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from selfdistill_cli.core.errors import ConfigError

PRIMARY = "train"
"""Name of the primary configuration, `conf/train.yaml`."""


def shipped_dir() -> Path:
    """The shipped configuration: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / f"{PRIMARY}.yaml").is_file():
            return folder
    raise ConfigError(
        f"the folder conf is neither in {package} nor beside it: the installation is incomplete; "
        "install selfdistill again"
    )


def config_dirs(config_dir: str | None) -> list[Path]:
    """The shipped folder and the user's own, which adds to it.

    Raises ConfigError if the user's folder does not exist.
    """
    folders = [shipped_dir()]
    if config_dir is not None:
        own = Path(config_dir).expanduser().resolve()
        if not own.is_dir():
            raise ConfigError(f"--config-dir: {config_dir} is not a folder; expected one like conf")
        folders.append(own)
    return folders


def extend_import_path(config_dir: str | None) -> None:
    """Let `_target_` name modules in the current folder and beside the user's configuration.

    Appended, so that a file of the user never hides an installed module.
    """
    wanted = [Path.cwd()]
    if config_dir is not None:
        wanted.append(Path(config_dir).expanduser().resolve().parent)
    for folder in wanted:
        if str(folder) not in sys.path:
            sys.path.append(str(folder))


def groups(folders: Sequence[Path]) -> list[str]:
    """All groups, sub-groups included, for example `method` and `method/credit`."""
    found = {
        path.parent.relative_to(folder).as_posix()
        for folder in folders
        for path in folder.rglob("*.yaml")
    }
    return sorted(found - {"."})


def options(folders: Sequence[Path], group: str) -> list[str]:
    """The options of a group: names of its YAML files."""
    return sorted({path.stem for folder in folders for path in (folder / group).glob("*.yaml")})


def find_file(folders: Sequence[Path], config_path: str) -> Path | None:
    """The file of `group/option`, searched in the order in which Hydra searches."""
    for folder in folders:
        path = folder / f"{config_path}.yaml"
        if path.is_file():
            return path
    return None
