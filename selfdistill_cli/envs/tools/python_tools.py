"""A user's own tools: functions of a Python file, which run in this process."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import math
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from selfdistill_cli.core.errors import DataError
from selfdistill_cli.envs.agents.actions import Tool
from selfdistill_cli.envs.files import file_or_error
from selfdistill_cli.envs.tools.schemas import BadFunction, tool_of
from selfdistill_cli.envs.tools.toolbox import ENDING

HOOKS = {"check": ("state", "answer", "task"), "setup": ("task",)}
"""Functions of the file that are no tools, with their parameters."""


class PythonTools:
    """The tools of a file, and its functions `check` and `setup` if it has them."""

    def __init__(self, path: str) -> None:
        """Import the file; raises DataError naming the file, and the line or the function."""
        self.path = path
        module = _imported(path)
        found = {
            name: value
            for name, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__
        }
        self._hooks = {name: self._hook(name, found) for name in HOOKS if name in found}
        self.functions: Mapping[str, Callable[..., Any]] = {
            name: function
            for name, function in found.items()
            if name not in HOOKS and not name.startswith("_")
        }
        self.tools: list[Tool] = [self._tool(f) for f in self.functions.values()]
        if not self.tools:
            raise DataError(
                f"env.tools={path}: found no function that could be a tool; expected functions "
                "with type hints and a docstring, whose names do not start with _"
            )

    @property
    def checks(self) -> bool:
        """Whether the file has a function `check`."""
        return "check" in self._hooks

    def grade(self, state: Any, answer: Any, task: Mapping[str, Any]) -> float:
        """Return what `check(state, answer, task)` says, in [0, 1]; raises DataError."""
        found = self._called("check", task, state, answer, dict(task))
        good = isinstance(found, bool | int | float) and not math.isnan(found)
        if not good or not 0 <= found <= 1:
            raise DataError(
                f"env.tools={self.path}: check returned {found!r:.60} for task {task.get('id')}; "
                "expected True, False, or a number from 0 to 1"
            )
        return float(found)

    def state(self, task: Mapping[str, Any]) -> Any:
        """Return what `setup(task)` returns, or the task's `state`; raises DataError."""
        if "setup" not in self._hooks:
            return task.get("state", {})
        return self._called("setup", task, dict(task))

    def _called(self, name: str, task: Mapping[str, Any], *arguments: Any) -> Any:
        try:
            return self._hooks[name](*arguments)
        except Exception as error:  # a user's code; told with its place instead of a traceback
            raise DataError(
                f"env.tools={self.path}{_line_of(error, self.path)}: {name} raised "
                f"{type(error).__name__}: {error!s:.200} for task {task.get('id')}"
            ) from None

    def _hook(self, name: str, found: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
        given = tuple(inspect.signature(found[name]).parameters)
        if given != HOOKS[name]:
            raise DataError(
                f"env.tools={self.path}: {name} has the parameters ({', '.join(given)}); expected "
                f"{name}({', '.join(HOOKS[name])})"
            )
        return found[name]

    def _tool(self, function: Callable[..., Any]) -> Tool:
        if any(function.__name__ == ending.name for ending in ENDING):
            raise DataError(
                f"env.tools={self.path}: '{function.__name__}' is the name of a built-in tool "
                "that ends an episode; rename the function"
            )
        try:
            return tool_of(function)
        except BadFunction as error:
            raise DataError(
                f"env.tools={self.path}: {error} (a helper that is no tool starts with _)"
            ) from None


def _imported(path: str) -> ModuleType:
    place = file_or_error(path, "env.tools", "a Python file with functions")
    name = f"selfdistill_tools_{hashlib.sha256(str(place.resolve()).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # type hints are looked up here
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise DataError(
            f"env.tools={path}{_line_of(error, path)}: cannot be imported: "
            f"{type(error).__name__}: {error!s:.200}"
        ) from None
    return module


def _line_of(error: BaseException, path: str) -> str:
    """Return `, line 3`: the last line of the file that the error came through."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f", line {error.lineno}"
    own = str(Path(path).resolve())
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if str(Path(f.filename).resolve()) == own]
    return f", line {lines[-1]}" if lines else ""
