"""The tasks of the tools environment, wherever they come from, and their worlds."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from selfdistill_cli.core.errors import ConfigError, DataError
from selfdistill_cli.core.hints import HintKind
from selfdistill_cli.core.types import Message, Task
from selfdistill_cli.envs.agents.actions import Action, Tool, in_words
from selfdistill_cli.envs.agents.skills import PromptSkills, Skills
from selfdistill_cli.envs.files import file_or_error
from selfdistill_cli.envs.splitting import by_split, check_split, hashed_split
from selfdistill_cli.envs.tools import bfcl, data, generator
from selfdistill_cli.envs.tools.calls import CallsWorld, Expected
from selfdistill_cli.envs.tools.choices import Listed, Written, choices_of
from selfdistill_cli.envs.tools.drawing import SPLITS
from selfdistill_cli.envs.tools.long_templates import TEMPLATES
from selfdistill_cli.envs.tools.python_tools import PythonTools
from selfdistill_cli.envs.tools.schema_tools import read_tools
from selfdistill_cli.envs.tools.settings import PANEL, PANELS, TASKS, ToolsEnvSettings
from selfdistill_cli.envs.tools.toolbox import FUNCTIONS, TOOLS
from selfdistill_cli.envs.tools.world import Setup, StatefulWorld

PANEL_SPLITS: tuple[str, ...] = tuple(f"bfcl_{panel}" for panel in PANELS)
OWN_SKILL = "Find the tool whose description fits, and fill in every parameter that it needs."
BUILTIN_SKILLS = Skills(
    general=(
        "Get a value with a tool before you use it; do not guess it.",
        "Copy names and numbers exactly.",
        "Change nothing that the request does not name.",
        "End with done, or with answer where a question is asked.",
    ),
    task={
        **{name: (template.skill,) for name, template in TEMPLATES.items()},
        **dict.fromkeys(("python", "calls"), (OWN_SKILL,)),
    },
)
ALL_SPLITS: tuple[str, ...] = (*SPLITS, *PANEL_SPLITS)


def actions(calls: Sequence[Mapping[str, Any]], kind: type[Action] = Action) -> list[Action]:
    """Return the calls of a task's record."""
    return [kind(name=call["name"], arguments=call["arguments"]) for call in calls]


class ToolsDomain:
    """Built-in tasks, a user's own, or a panel."""

    def __init__(self, settings: ToolsEnvSettings) -> None:
        """Keep the settings; reads no file."""
        self._settings = settings
        self._skills = PromptSkills(settings.prompt_skills, BUILTIN_SKILLS)

    def _kind(self, task: Task) -> type[Action]:
        """How calls of a task are written: built-in tools with one parameter have only one."""
        if self._settings.picks:
            return Listed
        return Action if task.meta["kind"] == "built_in" else Written

    @functools.cached_property
    def _python(self) -> PythonTools:
        assert self._settings.tools is not None
        return PythonTools(self._settings.tools)

    @functools.cached_property
    def _schemas(self) -> list[Tool]:
        assert self._settings.tools is not None
        return read_tools(self._settings.tools)

    @functools.cached_property
    def _user_tasks(self) -> dict[str, tuple[Task, ...]]:
        """The tasks of `env.data` by split."""
        s = self._settings
        assert s.tools is not None
        assert s.data is not None
        python = s.tools.endswith(".py")
        tools: Any = self._python if python else self._schemas

        def make(line: Any, task_id: str) -> Task:
            build: Any = data.stateful_task if python else data.compared_task
            return build(line, task_id, tools)

        found = data.read_tasks(s.data, make, s.validation_fraction, s.test_fraction)
        shown = [task for task in found["train"] if task.answer is not None]
        return {**found, "demonstrations": tuple(shown), "practice": ()}

    @functools.cached_property
    def _panel_tasks(self) -> dict[str, tuple[Task, ...]]:
        s = self._settings
        assert s.data is not None
        found = by_split(
            (hashed_split(task.id, s.validation_fraction, s.test_fraction), task)
            for task in bfcl.read_panel(s.data.removeprefix(PANEL))
        )
        return {**found, "demonstrations": found["train"], "practice": ()}

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the tasks of a split; raises ConfigError, DataError."""
        check_split("env=tools", split, ALL_SPLITS)
        found = self._found(split)
        if not found:
            raise DataError(
                f"env.data={self._settings.data}: no task falls into split '{split}'; add tasks, "
                'give lines a field "split", or change env.validation_fraction, env.test_fraction'
            )
        if self._settings.picks:
            self._check_choices(found)
        return [self._skilled(task) for task in found]

    def task_counts(self) -> dict[str, int] | None:
        """Return how many tasks of each split the files hold; None for the built-in ones."""
        if self._settings.data is None:
            return None
        found = self._panel_tasks if self._settings.tools is None else self._user_tasks
        if self._settings.picks:
            self._check_choices([task for tasks in found.values() for task in tasks])
        return {split: len(tasks) for split, tasks in found.items()}

    def _skilled(self, task: Task) -> Task:
        kind = task.meta.get("template", task.meta["kind"])
        return replace(task, messages=self._skills.added(task.messages, kind))

    def _found(self, split: str) -> Sequence[Task]:
        s = self._settings
        if split in PANEL_SPLITS:
            return tuple(bfcl.read_panel(split.removeprefix("bfcl_")))
        if s.data is None:
            return tuple(generator.tasks(split, s))
        return (self._panel_tasks if s.tools is None else self._user_tasks)[split]

    def _check_choices(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if task.meta["kind"] != "built_in" and not task.meta["choices"]:
                raise ConfigError(
                    f"env.format: got '{self._settings.format}', but task {task.id} lists no calls "
                    'to choose from; give its line a field "choices", or use env.format=native, '
                    "json or tags with env.show_choices=false"
                )

    def world(self, task: Task, seed: int) -> StatefulWorld | CallsWorld:
        """Return a new world; nothing about it is random."""
        del seed
        kind = task.meta["kind"]
        if kind == "calls":
            return self._calls_world(task)
        return StatefulWorld(self._built_in(task) if kind == "built_in" else self._own(task))

    def _calls_world(self, task: Task) -> CallsWorld:
        meta = task.meta
        tools = [Tool(**tool) for tool in meta["tools"]] if "tools" in meta else self._schemas
        expected = [Expected(**call, loose=meta["loose"]) for call in meta["expected"]]
        listed = actions(meta["choices"], self._kind(task))
        return CallsWorld(tools, expected, listed, meta["single"])

    def _built_in(self, task: Task) -> Setup:
        meta = task.meta
        plans = [actions(calls, self._kind(task)) for calls in (meta["calls"], *meta["decoys"])]
        limit = self._settings.num_choices
        return Setup(
            tools=[TOOLS[name] for name in meta["tools"]],
            functions=FUNCTIONS,
            state=meta["state"],
            goal=meta["goal"],
            answer=meta["answer"],
            grade=None,
            calls=plans[0],
            list_choices=functools.cache(
                functools.partial(choices_of, plans, limit=limit, key=task.id)
            ),
        )

    def _own(self, task: Task) -> Setup:
        record, python = task.meta["record"], self._python
        listed = actions(task.meta["choices"], self._kind(task))
        return Setup(
            tools=python.tools,
            functions=python.functions,
            state=python.state(record),
            goal=task.meta["goal"],
            answer=task.meta["answer"],
            grade=functools.partial(_graded, python, record) if python.checks else None,
            calls=actions(task.meta["calls"], self._kind(task)),
            list_choices=lambda place: listed,
        )

    def hint(self, kind: HintKind, task: Task, seed: int) -> str | None:
        """Return an expert's calls, what the state must be, or how the tools are used."""
        if kind == "answer":
            calls = actions(task.meta["calls"], self._kind(task))
            if self._settings.picks:  # chosen from a list: its text is never read
                return "; ".join(action.short() for action in calls)
            tools = self.world(task, seed).tools()
            return "; ".join(in_words(action, tools) for action in calls)
        if kind == "evidence":
            return "\n".join(task.meta["evidence"])
        return task.meta["skill"] if kind == "skill" else None

    def feedback(self, task: Task, outcome: Mapping[str, Any]) -> str | None:
        """Return how the final state, the answer or the calls differ from the goal."""
        return "\n".join(outcome.get("difference", ()))

    def without_skills(self, task: Task) -> tuple[Message, ...] | None:
        """Return the prompt without the general skills, None if there are none in it."""
        return self._skills.pruned(task.messages)

    def fingerprint(self) -> str:
        """Return the SHA-256 of what tools and data hold; raises ConfigError, DataError."""
        s = self._settings
        if s.data is None:
            return hashlib.sha256(f"built in {generator.VERSION}".encode()).hexdigest()
        if s.data.startswith(PANEL):
            paths = [bfcl.panel_file(s.data.removeprefix(PANEL), bfcl.folder())]
        else:
            assert s.tools is not None
            tools = file_or_error(s.tools, "env.tools", "a file")
            paths = [tools, file_or_error(s.data, TASKS.key, TASKS.file)]
        return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def _graded(python: PythonTools, record: Mapping[str, Any], state: Any, answer: Any) -> float:
    return python.grade(state, answer, record)
