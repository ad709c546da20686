"""The user's own tasks: JSON lines in the forms that the readers know, divided into splits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from selfdistill_cli.core.errors import DataError, did_you_mean
from selfdistill_cli.core.types import Message, Task
from selfdistill_cli.envs.code.readers import contests, functions
from selfdistill_cli.envs.code.readers.lines import Line, lines_of
from selfdistill_cli.envs.code.readers.named import find

SPLITS = ("train", "validation", "test")
IDS = ("task_id", "question_id", "problem_id")


def read_tasks(
    path: str, validation_fraction: float, test_fraction: float
) -> dict[str, tuple[Task, ...]]:
    """Read a file of tasks and split it.

    A line's own `split` counts; without one, a hash of the task id decides, so that a task stays
    in its split when others come and go. Raises DataError naming file, line and field.
    """
    found: dict[str, list[Task]] = {split: [] for split in SPLITS}
    for _, line, task in numbered_tasks(path):
        split = _own_split(line) or _drawn_split(task.id, validation_fraction, test_fraction)
        found[split].append(task)
    return {split: tuple(tasks) for split, tasks in found.items()}


def numbered_tasks(path: str) -> Iterator[tuple[int, Line, Task]]:
    """Yield number, content and task of every line; raises DataError, also for an empty file."""
    path = find(path)
    seen: dict[str, int] = {}
    for number, line in lines_of(path):
        task = make_task(line)
        if task.id in seen:
            raise line.error(
                _id_field(line), f"'{task.id}', also on line {seen[task.id]}", "an id of its own"
            )
        _own_split(line)  # a wrong one is an error for every reader of the file
        seen[task.id] = number
        yield number, line, task
    if not seen:
        raise DataError(f"{path}: found no task; expected one JSON object per line")


def _own_split(line: Line) -> str | None:
    """Return what the line says itself; raises DataError."""
    split = line.text("split", required=False)
    if split is not None and split not in SPLITS:
        near = did_you_mean(split, SPLITS)
        raise line.error("split", f"'{split}'{near}", f"one of {', '.join(SPLITS)}")
    return split


def _drawn_split(task_id: str, validation_fraction: float, test_fraction: float) -> str:
    place = int.from_bytes(hashlib.sha256(task_id.encode()).digest()[:8], "big") / 2**64
    if place < test_fraction:
        return "test"
    return "validation" if place < test_fraction + validation_fraction else "train"


def make_task(line: Line) -> Task:
    """Return the task of one line; raises DataError."""
    name = _id_field(line)
    task_id = line.record.get(name)
    if name not in line.record:
        near = did_you_mean(name, line.record)
        others = ", ".join(f'"{other}"' for other in IDS[1:])
        expected = f"a string or a whole number (or {others}); add it to the line"
        raise line.error(name, f"no such field{near}", expected)
    if isinstance(task_id, bool) or not isinstance(task_id, (str, int)) or task_id == "":
        raise line.error(name, f"{task_id!r:.60}", "a string or a whole number")
    parsed = contests.read(line) if contests.is_contest(line) else functions.read(line)
    meta = dict(parsed.meta)
    skill = line.text("skill", required=False)
    if skill is not None:
        meta["skill"] = skill
    message = Message(role="user", content=parsed.prompt)
    return Task(id=str(task_id), messages=(message,), answer=parsed.answer, meta=meta)


def _id_field(line: Line) -> str:
    return next((name for name in IDS if name in line.record), IDS[0])
