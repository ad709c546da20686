"""Expected values that a file leaves out: what the reference returns in the sandbox."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from selfdistill_cli.core.errors import DataError
from selfdistill_cli.core.types import Task
from selfdistill_cli.envs.code.grading import call_job, shown
from selfdistill_cli.sandbox.sandbox import Sandbox

EXPECTED = (
    "expected one for every input (env.sandbox.time_limit_s may be too short, or JSON has lists "
    'where the reference needs tuples or sets: use the form whose tests are code, field "test")'
)


def with_expected(sandbox: Sandbox, tasks: Sequence[Task], data: str | None) -> tuple[Task, ...]:
    """Return the tasks, with `meta["expected"]` for those that have calls and no results.

    Raises DataError, which names `data` and the task, if a reference fails on an input, and
    SandboxError.
    """
    missing = [
        i for i, task in enumerate(tasks) if task.meta.get("calls") and "expected" not in task.meta
    ]
    jobs = [call_job(tasks[i].meta, tasks[i].answer) for i in missing]
    found = list(tasks)
    reports = sandbox.run_calls(jobs) if jobs else []
    for i, report in zip(missing, reports, strict=True):
        task = tasks[i]
        for call, result in zip(task.meta["calls"], report.results, strict=True):
            if result.status != "returned":
                arguments = ", ".join(map(shown, call))
                place = f"env.data={data}, task {task.id}: " if data else ""
                raise DataError(
                    f"{place}the reference gives no result for {task.meta['entry_point']}"
                    f"({arguments}): {result.status} {result.message}; {EXPECTED}"
                )
        expected = [result.value for result in report.results]
        found[i] = dataclasses.replace(task, meta={**task.meta, "expected": expected})
    return tuple(found)
