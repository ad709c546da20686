"""The user's own tasks for the user's own tools: JSON lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from selfdistill_cli.core.errors import did_you_mean
from selfdistill_cli.core.types import Message, Task
from selfdistill_cli.envs.agents.actions import Action, Malformed, Tool, from_call
from selfdistill_cli.envs.json_lines import Line, lines_of
from selfdistill_cli.envs.splitting import by_split, hashed_split, own_split
from selfdistill_cli.envs.tools.calls import Expected
from selfdistill_cli.envs.tools.python_tools import PythonTools
from selfdistill_cli.envs.tools.settings import TASKS
from selfdistill_cli.envs.tools.world import call_fits

CALL = '{"name": "...", "arguments": {...}}'
COMMON = ("id", "prompt", "split", "skill", "evidence", "choices", "calls")
STATEFUL = ("state", "final_state", "answer")
TaskMaker = Callable[[Line, str], Task]


def read_tasks(
    path: str, make: TaskMaker, validation_fraction: float, test_fraction: float
) -> dict[str, tuple[Task, ...]]:
    """Read a file of tasks and split it, by a line's own `split` or by a hash of its id.

    Raises DataError naming file, line and field.
    """
    return by_split(
        (own_split(line) or hashed_split(task.id, validation_fraction, test_fraction), task)
        for line, task in _tasks(path, make)
    )


def _tasks(path: str, make: TaskMaker) -> Iterator[tuple[Line, Task]]:
    lines: dict[str, int] = {}
    for line in lines_of(path, TASKS):
        line.check_texts()
        task_id = line.identifier("id") if "id" in line.record else f"line {line.number}"
        line.note_identifier("id", task_id, lines)
        yield line, make(line, task_id)


def _check_names(line: Line, known: Sequence[str]) -> None:
    for name in line.record:
        if name not in known:
            near = did_you_mean(name, known)
            raise line.error(name, "a field that means nothing here", f"{', '.join(known)}{near}")


def _prompt(line: Line) -> tuple[Message, ...]:
    prompt = line.text("prompt") or ""
    if not prompt.strip():
        raise line.error("prompt", "no words", "what the agent is asked to do")
    return (Message(role="user", content=prompt),)


def _actions(line: Line, field: str, tools: Sequence[Tool]) -> list[Action]:
    """Return the calls of a field, each of which fits its tool; raises DataError."""
    value = line.record.get(field) or []
    if not isinstance(value, list):
        raise line.error(field, f"{value!r:.60}", f"a list of {CALL}")
    actions: list[Action] = []
    for i, item in enumerate(value):
        try:
            action = from_call(item)
        except Malformed as error:
            raise line.error(f"{field}[{i}]", f"{item!r:.60}", f"{CALL} ({error})") from None
        problem = call_fits(action, tools)
        if problem is not None:
            raise line.error(f"{field}[{i}]", f"{item!r:.80}", f"a call that fits ({problem})")
        actions.append(action)
    return actions


def _choices(line: Line, tools: Sequence[Tool], needed: Sequence[Action]) -> list[dict[str, Any]]:
    """Return the field `choices`, in which the expert's calls must be."""
    choices = [action.call() for action in _actions(line, "choices", tools)]
    for action in needed if choices else ():
        if action.call() not in choices:
            raise line.error("choices", f"no {action.short():.80}", "every call of an expert in it")
    return choices


def _shared(line: Line) -> dict[str, Any]:
    texts = {name: line.text(name, required=False) for name in ("skill", "evidence")}
    return {"skill": texts["skill"], "evidence": [texts["evidence"]] if texts["evidence"] else []}


def stateful_task(line: Line, task_id: str, python: PythonTools) -> Task:
    """Return a task for functions: graded by `final_state`, `answer` or the file's `check`."""
    _check_names(line, (*COMMON, *STATEFUL))
    record = {**line.record, "id": task_id}
    graded = any(record.get(name) is not None for name in ("final_state", "answer"))
    if not graded and not python.checks:
        raise line.error(
            "answer",
            "neither answer nor final_state",
            f"one of them, or a function check(state, answer, task) in {python.path}",
        )
    answer = record.get("answer")
    if answer is not None and (
        isinstance(answer, bool) or not isinstance(answer, str | int | float)
    ):
        raise line.error("answer", f"{answer!r:.60}", "a text or a number")
    calls = _actions(line, "calls", python.tools)
    if calls and calls[-1].name not in ("done", "answer"):
        arguments = {} if answer is None else {"text": answer}
        calls.append(Action(name="done" if answer is None else "answer", arguments=arguments))
    return Task(
        id=task_id,
        messages=_prompt(line),
        answer="; ".join(action.short() for action in calls) or None,
        meta={
            "kind": "python", "record": record, "calls": [action.call() for action in calls],
            "goal": record.get("final_state"), "answer": answer,
            "choices": _choices(line, python.tools, calls), **_shared(line),
        },
    )  # fmt: skip


def compared_task(line: Line, task_id: str, tools: Sequence[Tool]) -> Task:
    """Return a task whose calls are compared with the field `calls`."""
    _check_names(line, COMMON)
    if not isinstance(line.record.get("calls"), list):
        expected = f"a list of {CALL}; [] where no tool fits the request"
        raise line.error("calls", f"{line.record.get('calls')!r:.60}", expected)
    calls = _actions(line, "calls", tools)
    expected = [
        _expected(line, f"calls[{i}]", item, action)
        for i, (item, action) in enumerate(zip(line.record["calls"], calls, strict=True))
    ]
    examples = [Expected(**call, loose=False).example() for call in expected]
    ended = [*examples, Action(name="done")]
    return Task(
        id=task_id,
        messages=_prompt(line),
        answer="; ".join(action.short() for action in ended),
        meta={
            "kind": "calls", "calls": [action.call() for action in ended],
            "expected": expected, "loose": False, "single": False,
            "choices": _choices(line, tools, ended), **_shared(line),
        },
    )  # fmt: skip


def _expected(line: Line, where: str, item: dict[str, Any], action: Action) -> dict[str, Any]:
    alternatives, optional = item.get("alternatives", {}), item.get("optional", [])
    if not isinstance(alternatives, dict) or not all(map(_is_list, alternatives.values())):
        raise line.error(
            f"{where}.alternatives", f"{alternatives!r:.60}", '{"parameter": [other right values]}'
        )
    if not isinstance(optional, list) or not all(isinstance(name, str) for name in optional):
        raise line.error(f"{where}.optional", f"{optional!r:.60}", "a list of parameters")
    for name in (*alternatives, *optional):
        if name not in action.arguments:
            near = did_you_mean(str(name), action.arguments)
            known = ", ".join(action.arguments) or "none"
            raise line.error(where, f"'{name}'{near}", f"parameters of the call: {known}")
    allowed = {n: [value, *alternatives.get(n, [])] for n, value in action.arguments.items()}
    return {"name": action.name, "allowed": allowed, "optional": list(optional)}


def _is_list(value: Any) -> bool:
    return isinstance(value, list)
