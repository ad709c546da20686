"""Evaluation on a fixed panel: the same tasks, the same random streams, every time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfdistill_cli.core.errors import CheckpointError, ConfigError, did_you_mean
from selfdistill_cli.core.statistics import paired_difference, success_interval
from selfdistill_cli.core.types import Group, Task
from selfdistill_cli.training.files import write_json
from selfdistill_cli.training.settings import EvalSettings
from selfdistill_cli.training.workshop import EVALUATION, TrainingWorkshop

if TYPE_CHECKING:
    from selfdistill_cli.training.run import Run

LEVEL = 0.95
REPETITIONS = 2000


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Success of every attempt at every task of a panel."""

    step: int
    """The step after which it was measured."""
    panel: str
    """Fingerprint of the panel's tasks, their texts and tests included."""
    task_ids: tuple[str, ...]
    """N tasks, in panel order."""
    successes: tuple[tuple[float, ...], ...]
    """[N][k] success of each attempt, in [0, 1]."""
    mean_reward: float
    """Mean total reward; rejected attempts count as 0."""
    mean_length: float
    """Mean sampled tokens per attempt."""

    @property
    def success(self) -> float:
        """Mean over tasks of the mean success over attempts."""
        return sum(sum(row) / len(row) for row in self.successes) / len(self.successes)

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson interval of `success` over tasks."""
        found = success_interval(self.successes, level=LEVEL)
        return found.low, found.high

    def metrics(self) -> dict[str, float]:
        """What goes to metrics.jsonl."""
        low, high = self.interval
        return {
            "eval/success": self.success,
            "eval/success_low": low,
            "eval/success_high": high,
            "eval/reward": self.mean_reward,
            "eval/response_length": self.mean_length,
        }

    def save(self, path: Path) -> None:
        """Write every attempt's success, so that runs can be compared task by task."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, self.__dict__)

    @classmethod
    def load(cls, path: Path) -> Evaluation:
        """Read what `save` wrote; raises CheckpointError for anything else."""
        try:
            data = json.loads(path.read_bytes())
            data["task_ids"] = tuple(data["task_ids"])
            data["successes"] = tuple(tuple(row) for row in data["successes"])
            return cls(**data)
        except (OSError, ValueError, TypeError, LookupError) as error:
            raise CheckpointError(
                f"{path} cannot be read as an evaluation: {type(error).__name__}: {error}; put a "
                "copy back, or delete the file"
            ) from error


def fingerprint(tasks: Sequence[Task]) -> str:
    """Return 12 hex digits of the tasks' ids, messages, answers and tests, in order."""
    rows = [[task.id, list(task.messages), task.answer, dict(task.meta)] for task in tasks]
    text = json.dumps(rows, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def panel_tasks(workshop: TrainingWorkshop, settings: EvalSettings) -> list[Task]:
    """The first `num_tasks` tasks of the panel's split."""
    tasks = list(workshop.tasks(settings.panel))[: settings.num_tasks]
    if not tasks:
        raise ConfigError(
            f"eval.panel={settings.panel}: the environment has no such tasks (eval.num_tasks="
            f"{settings.num_tasks}); expected a split with at least one task"
        )
    return tasks


def evaluate_panel(
    workshop: TrainingWorkshop, settings: EvalSettings, step: int
) -> tuple[Evaluation, list[Group]]:
    """Play the panel; also return the groups, for people to read."""
    groups = workshop.play_with(
        panel_tasks(workshop, settings),
        purpose=EVALUATION,
        step=0,  # the same random streams at every step: evaluations are paired
        group_size=settings.samples_per_task,
        temperature=settings.temperature,
        hints=settings.hints,
    )
    scores = [score for group in groups for score in group.scores]
    lengths = [
        sum(len(turn.generation.action_ids) for turn in trajectory.turns)
        for group in groups
        for trajectory in group.trajectories
    ]
    evaluation = Evaluation(
        step=step,
        panel=fingerprint([group.task for group in groups]),
        task_ids=tuple(group.task.id for group in groups),
        successes=tuple(tuple(score.success for score in group.scores) for group in groups),
        mean_reward=sum(score.total or 0.0 for score in scores) / len(scores),
        mean_length=sum(lengths) / len(lengths),
    )
    return evaluation, groups


def evaluation_due(settings: EvalSettings, step: int, max_steps: int) -> bool:
    """Every `every` steps and at the last one."""
    return settings.every > 0 and (step % settings.every == 0 or step == max_steps)


def evaluate(run: Run, step: int) -> Evaluation:
    """Evaluate the student on the run's panel and keep every attempt's result."""
    run.phase("evaluating")
    evaluation, groups = evaluate_panel(run.workshop, run.settings.eval, step)
    run.world.from_first(lambda: evaluation.save(evaluation_path(run.directory, step)))
    problem = unknown_metric(run.settings.checkpoint.best_metric, evaluation, groups)
    if step == 0 and problem is not None:
        run.display.message(problem)
    return evaluation


def unknown_metric(name: str, evaluation: Evaluation, groups: Sequence[Group]) -> str | None:
    """Say that checkpoint.best_metric names no number that this run logs, or None."""
    parts = {part for group in groups for score in group.scores for part in score.parts}
    rewards = {f"reward/{part}" for part in (*parts, "mean", "std", "success")}
    known = {*evaluation.metrics(), "eval/teacher_success", *rewards}
    if name in known:
        return None
    return (
        f"checkpoint.best_metric: there is no metric '{name}', so no checkpoint is ever the best"
        f"{did_you_mean(name, known)} (known: {', '.join(sorted(known))})"
    )


def evaluate_teacher(run: Run, step: int) -> dict[str, float]:
    """`eval/teacher_success`: the slow copy, under the student's own prompt, on the same panel."""
    if run.slow_copy is None or not run.settings.method.evaluate_teacher:  # pyright: ignore
        return {}
    return {"eval/teacher_success": evaluate_copy(run, step).success}


def evaluate_copy(run: Run, step: int) -> Evaluation:
    """Play the panel with the slow copy's weights, then give the rollout the student's again."""
    assert run.slow_copy is not None, "a sync keeps the copy that is evaluated"
    run.phase("evaluating the teacher")
    with run.slow_copy.in_place():
        run.load_rollout(step)
        evaluation, _ = evaluate_panel(run.workshop, run.settings.eval, step)
    run.load_rollout(step)
    return evaluation


def evaluation_path(directory: Path, step: int) -> Path:
    """Where a step's evaluation lies."""
    return directory / "evaluations" / f"step_{step:06d}.json"


def improvement(before: Evaluation, after: Evaluation) -> dict[str, Any]:
    """Paired difference of two evaluations of one panel: point and interval."""
    assert before.panel == after.panel, "evaluations of one panel"
    found = paired_difference(
        before.successes, after.successes, seed=0, reps=REPETITIONS, level=LEVEL
    )
    return {"difference": found.point, "low": found.low, "high": found.high}
