"""The user's own tasks: JSON lines in the forms that the readers know, divided into splits."""

from __future__ import annotations

from collections.abc import Iterator

from selfdistill_cli.core.types import Message, Task
from selfdistill_cli.envs.code.readers import contests, functions
from selfdistill_cli.envs.code.readers.named import TASKS, find
from selfdistill_cli.envs.json_lines import Line, lines_of
from selfdistill_cli.envs.splitting import by_split, hashed_split, own_split

IDS = ("task_id", "question_id", "problem_id")


def read_tasks(
    path: str, validation_fraction: float, test_fraction: float
) -> dict[str, tuple[Task, ...]]:
    """Read a file of tasks and split it.

    A line's own `split` counts; without one, a hash of the task id decides, so that a task stays
    in its split when others come and go. Raises DataError naming file, line and field.
    """
    return by_split(
        (own_split(line) or hashed_split(task.id, validation_fraction, test_fraction), task)
        for line, task in placed_tasks(path)
    )


def placed_tasks(path: str) -> Iterator[tuple[Line, Task]]:
    """Yield line and task, in order; raises DataError, also for an empty file."""
    lines: dict[str, int] = {}
    for line in lines_of(find(path), TASKS):
        line.check_texts()
        task = make_task(line)
        line.note_identifier(_id_field(line), task.id, lines)
        own_split(line)  # a wrong one is an error for every reader of the file
        yield line, task


def make_task(line: Line) -> Task:
    """Return the task of one line; raises DataError."""
    task_id = line.identifier(_id_field(line), IDS[1:])
    parsed = contests.read(line) if contests.is_contest(line) else functions.read(line)
    meta = dict(parsed.meta)
    skill = line.text("skill", required=False)
    if skill is not None:
        meta["skill"] = skill
    message = Message(role="user", content=parsed.prompt)
    return Task(id=task_id, messages=(message,), answer=parsed.answer, meta=meta)


def _id_field(line: Line) -> str:
    return next((name for name in IDS if name in line.record), IDS[0])
