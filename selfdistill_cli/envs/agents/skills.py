"""Skills in an agent's own prompt: general ones and those of a kind of task.

`env.prompt_skills` is null, `builtin`, or a JSON file:

    {"general": ["..."], "task": {"KIND": ["..."]}}

The hint `pruned` is the prompt without the general ones (BCSD, arXiv 2608.09555).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selfdistill_cli.core.errors import DataError, did_you_mean
from selfdistill_cli.core.texts import decoded, readable
from selfdistill_cli.core.types import Message

BUILTIN = "builtin"
EXPECTED = '{"general": ["..."], "task": {"KIND": ["..."]}}'


@dataclass(frozen=True, kw_only=True)
class Skills:
    """One-line skills."""

    general: tuple[str, ...]
    """Of use in every task."""
    task: Mapping[str, tuple[str, ...]]
    """By kind of task."""

    def general_block(self) -> str:
        """Return the general skills as they stand in a prompt; empty if there are none."""
        return _block("General skills:", self.general)

    def task_block(self, kind: str) -> str:
        """Return the skills of a kind as they stand in a prompt; empty if there are none."""
        return _block("Skills for this task:", self.task.get(kind, ()))


def _block(title: str, lines: Sequence[str]) -> str:
    return "".join([f"{title}\n", *(f"- {line}\n" for line in lines)]) if lines else ""


def read_skills(setting: str | None, builtin: Skills, kinds: Collection[str]) -> Skills | None:
    """Return the skills that `env.prompt_skills` names, None for null.

    `kinds`: kinds of task that the environment has; an unknown one in the file is a mistake.
    Raises DataError naming file and key.
    """
    if setting is None:
        return None
    if setting == BUILTIN:
        return builtin
    where = f"env.prompt_skills={setting}"
    record = _record(where, setting)
    for key in record:
        if key not in ("general", "task"):
            near = did_you_mean(key, ("general", "task"))
            raise DataError(f'{where}: unknown key "{key}"{near}; expected {EXPECTED}')
    task = record.get("task", {})
    if not isinstance(task, dict):
        raise DataError(f'{where}, "task": found {type(task).__name__}; expected {EXPECTED}')
    for kind in task:
        if kind not in kinds:
            raise DataError(
                f'{where}, "task": there is no kind "{kind}"; known: {", ".join(sorted(kinds))}'
                + did_you_mean(kind, kinds)
            )
    skills = Skills(
        general=_lines(where, "general", record.get("general", [])),
        task={kind: _lines(where, f"task.{kind}", lines) for kind, lines in task.items()},
    )
    if not skills.general and not any(skills.task.values()):
        raise DataError(f"{where}: no skill in it; expected {EXPECTED}, or null for none")
    return skills


def _record(where: str, path: str) -> dict[str, Any]:
    try:
        record = json.loads(decoded(Path(path).read_bytes(), where, path))
    except OSError as error:
        raise DataError(
            f"{where}: {error.strerror}; expected a JSON file, {BUILTIN}, or null"
        ) from None
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{where}: not JSON ({error}); expected {EXPECTED}") from None
    if not isinstance(record, dict):
        raise DataError(f"{where}: found {type(record).__name__}; expected {EXPECTED}")
    return record


def _lines(where: str, key: str, found: Any) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(line, str) for line in found):
        raise DataError(f'{where}, "{key}": found {found!r:.60}; expected a list of strings')
    lines = (" ".join(readable(line).split()) for line in found)
    return tuple(line for line in lines if line)


def with_skills(
    messages: Sequence[Message], skills: Skills | None, kind: str
) -> tuple[Message, ...]:
    """Return the messages with the skills before the last user message's own words."""
    if skills is None:
        return tuple(messages)
    return _changed(messages, lambda t: f"{skills.general_block()}{skills.task_block(kind)}{t}")


def without_general(
    messages: Sequence[Message], skills: Skills | None
) -> tuple[Message, ...] | None:
    """Return the messages that `with_skills` made, less the general skills; None if none are."""
    block = "" if skills is None else skills.general_block()
    pruned = _changed(messages, lambda text: text.replace(block, "", 1) if block else text)
    return None if pruned == tuple(messages) else pruned


class PromptSkills:
    """The skills that `env.prompt_skills` names, in the prompts of an environment."""

    def __init__(self, setting: str | None, builtin: Skills) -> None:
        """Keep what names them; a file is read on first use, once."""
        self._setting, self._builtin = setting, builtin

    @functools.cached_property
    def _skills(self) -> Skills | None:
        return read_skills(self._setting, self._builtin, self._builtin.task)

    def added(self, messages: Sequence[Message], kind: str) -> tuple[Message, ...]:
        """Return the messages with the skills; see `with_skills`. Raises DataError."""
        return with_skills(messages, self._skills, kind)

    def pruned(self, messages: Sequence[Message]) -> tuple[Message, ...] | None:
        """Return the messages without the general skills; see `without_general`."""
        return without_general(messages, self._skills)


def _changed(messages: Sequence[Message], change: Any) -> tuple[Message, ...]:
    out = list(messages)
    last = max(i for i, message in enumerate(out) if message["role"] == "user")
    out[last] = Message(role="user", content=change(out[last]["content"]))
    return tuple(out)
