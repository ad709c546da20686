"""Built-in tasks, made from a split's name and a number."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from selfdistill_cli.core.seeds import seed_for
from selfdistill_cli.core.types import Message, Task
from selfdistill_cli.envs.agents.actions import Action
from selfdistill_cli.envs.tools.drawing import Draw
from selfdistill_cli.envs.tools.long_templates import TEMPLATES
from selfdistill_cli.envs.tools.settings import ToolsEnvSettings
from selfdistill_cli.envs.tools.state import changes
from selfdistill_cli.envs.tools.template import Case, Template
from selfdistill_cli.envs.tools.toolbox import FUNCTIONS, State, run

VERSION = 1
"""Goes up when a task changes, so that a run that continues is told."""
DECOYS = 4
"""Requests of the same kind that a task's state would allow and that are not made."""
WITHHELD = "Do what is asked of you."
"""The request of a practice task: nothing but a hint tells what it is."""


def allowed(settings: ToolsEnvSettings) -> list[Template]:
    """Return the templates that the settings allow; raises nothing, may be empty."""
    names = settings.templates or list(TEMPLATES)
    return [TEMPLATES[name] for name in names if TEMPLATES[name].num_calls <= settings.max_calls]


def tasks(split: str, settings: ToolsEnvSettings) -> Iterator[Task]:
    """Yield the tasks of a split, each template in its turn."""
    templates = allowed(settings)
    count = settings.train_tasks if split == "train" else settings.other_tasks
    for number in range(count):
        yield make_task(split, number, templates[number % len(templates)], settings)


def make_task(split: str, number: int, template: Template, settings: ToolsEnvSettings) -> Task:
    """Return a task of a template."""
    key = f"{split} {number} {template.name}"
    draw = Draw(split, seed_for("tools task", VERSION, key))
    kinds = [template] * (1 + DECOYS)
    if settings.decoys == "other_kinds":
        kinds = [template, *_other_kinds(template, allowed(settings), draw)]
    cases = [kind.case(draw) for kind in kinds]
    draw.path(draw.name())  # neither the request nor a decoy is about these
    draw.key(draw.whole(10, 999))
    state = draw.state
    plan, *decoys = (_plan(k, case, state) for k, case in zip(kinds, cases, strict=True))
    request = draw.one(template.requests).format(**cases[0])
    goal, replies = played(state, plan)
    return Task(
        id=key,
        messages=(Message(role="user", content=WITHHELD if split == "practice" else request),),
        answer="; ".join(action.short() for action in plan),
        meta={
            "kind": "built_in", "template": template.name, "skill": template.skill,
            "state": state, "goal": goal, "answer": template.answer(cases[0], state),
            "calls": [action.call() for action in plan],
            "decoys": [[action.call() for action in decoy] for decoy in decoys],
            "evidence": changes(state, goal) or replies,
            "tools": _offered(plan, decoys, settings, draw),
        },
    )  # fmt: skip


def _plan(template: Template, case: Case, state: State) -> list[Action]:
    answer = template.answer(case, state)
    arguments: dict[str, Any] = {} if answer is None else {"text": answer}
    last = Action(name="done" if answer is None else "answer", arguments=arguments)
    return [*template.calls(case, state), last]


def played(state: State, plan: Sequence[Action]) -> tuple[State, list[str]]:
    """Return the state after a plan's calls, and what they said."""
    state = copy.deepcopy(state)
    replies = [f"{a.short()}: {run(FUNCTIONS[a.name], state, a)}" for a in plan[:-1]]
    return state, replies


def _other_kinds(template: Template, known: Sequence[Template], draw: Draw) -> list[Template]:
    """Return kinds with as many calls that have no tool in common with a kind, DECOYS at most."""
    used = _tools_of(template)
    others = [t for t in known if t.num_calls == template.num_calls and not used & _tools_of(t)]
    return draw.several(others, min(DECOYS, len(others)))


@functools.cache
def _tools_of(template: Template) -> frozenset[str]:
    """Return the names of the tools that a kind of task takes: those of any of its cases."""
    draw = Draw("train", 0)
    calls = template.calls(template.case(draw), draw.state)
    return frozenset(action.name for action in calls)


def _offered(
    plan: Sequence[Action], decoys: Sequence[Sequence[Action]], settings: ToolsEnvSettings,
    draw: Draw,
) -> list[str]:  # fmt: skip
    """Return the names of the tools that are needed and of some others, in the toolbox's order."""
    needed = {action.name for calls in (plan, *decoys) for action in calls[:-1]}
    extra = settings.extra_tools
    others = [name for name in FUNCTIONS if name not in needed]
    offered = needed | set(draw.several(others, min(extra, len(others))))
    return [name for name in FUNCTIONS if name in offered]
