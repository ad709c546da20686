"""The rows of an environment of verifiers as tasks, divided into splits."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from selfdistill_cli.core.errors import DataError
from selfdistill_cli.core.types import Task
from selfdistill_cli.envs.splitting import by_split, hashed_split
from selfdistill_cli.envs.verifiers.messages import told, with_tools
from selfdistill_cli.envs.verifiers.settings import VerifiersSettings

log = logging.getLogger(__name__)


def read_tasks(env: Any, settings: VerifiersSettings) -> dict[str, tuple[Task, ...]]:
    """Return the tasks by split; raises DataError for a row that cannot be one.

    An environment with data of its own for evaluation has its train there; what is for evaluation
    is divided into validation and test. Else a hash of the row decides.
    """
    env.build_dataset()
    env.build_eval_dataset()
    v, t = settings.validation_fraction, settings.test_fraction
    if env.dataset is None or env.eval_dataset is None:
        rows = env.eval_dataset if env.dataset is None else env.dataset
        tasks = _tasks(rows, env, settings)
        return by_split((hashed_split(task.id, v, t), task) for task in tasks)
    train = list(_tasks(env.dataset, env, settings))
    known = {task.id for task in train}
    held = [task for task in _tasks(env.eval_dataset, env, settings) if task.id not in known]
    share = t / (v + t) if v + t else 0.0
    return by_split(
        [("train", task) for task in train]
        + [(hashed_split(task.id, 1.0 - share, share), task) for task in held]
    )


def _tasks(rows: Any, env: Any, settings: VerifiersSettings) -> Iterator[Task]:
    """Yield a task for every row that is not there yet."""
    seen: set[str] = set()
    again = 0
    for number, row in enumerate(islice(rows, settings.num_tasks), start=1):
        task = _task(row, env, f"env.name={settings.name}, row {number}")
        again += task.id in seen
        if task.id not in seen:
            seen.add(task.id)
            yield task
    if again:
        log.warning("env.name=%s: %d rows repeat others and are left out", settings.name, again)


def _task(row: Mapping[str, Any], env: Any, where: str) -> Task:
    try:
        content = json.dumps({k: v for k, v in row.items() if k != "example_id"}, sort_keys=True)
        messages = with_tools([told(message) for message in row["prompt"]], tools_of(row, env))
    except (TypeError, ValueError, KeyError) as error:
        raise DataError(
            f"{where}: cannot be a task ({type(error).__name__}: {error!s:.160}); expected a "
            "prompt of text messages, and columns that are JSON"
        ) from None
    if not any(message["role"] == "user" for message in messages):
        raise DataError(f"{where}: found no message of a user; expected one in its prompt")
    answer = row.get("answer")
    return Task(
        id=hashlib.sha256(content.encode()).hexdigest()[:16],
        messages=messages,
        answer=answer if isinstance(answer, str) and answer.strip() else None,
        meta={"row": dict(row)},
    )


def tools_of(row: Mapping[str, Any], env: Any) -> Sequence[Any]:
    """Return the tools that a row offers: its own, or the environment's."""
    info: Any = row.get("info")
    info = json.loads(info) if isinstance(info, str) and info.strip() else info
    own = info.get("tool_defs") if isinstance(info, Mapping) else None
    known: Sequence[Any] = env.tool_defs or [] if own is None else own
    return known
