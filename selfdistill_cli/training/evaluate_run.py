"""`selfdistill eval RUN`: a checkpoint of a run on a panel, with an interval."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.core.hints import HintKind
from selfdistill_cli.core.parts import build_part
from selfdistill_cli.core.protocols import Env
from selfdistill_cli.methods.method import Method
from selfdistill_cli.policies.causal import CausalPolicy
from selfdistill_cli.training.checkpoints import Checkpoint
from selfdistill_cli.training.evaluation import Evaluation, evaluate_panel, improvement
from selfdistill_cli.training.initial import find_checkpoint
from selfdistill_cli.training.settings import EvalSettings, TrainSettings
from selfdistill_cli.training.start import build_policy, build_workshop, prepare_process, view_of
from selfdistill_cli.training.workshop import TrainingWorkshop


@dataclass(frozen=True, kw_only=True)
class EvalReport:
    """What one evaluation of a run found."""

    evaluation: Evaluation
    """The panel's results."""
    path: Path
    """The file that holds every attempt."""
    against_plain: dict[str, Any] | None
    """With hints: the paired difference to the same panel without them, and its interval."""


def evaluate_run(
    settings: TrainSettings,
    directory: Path,
    *,
    split: str | None = None,
    checkpoint: str = "best",
    hints: Sequence[HintKind] = (),
    samples: int | None = None,
    num_tasks: int | None = None,
    data: str | None = None,
) -> EvalReport:
    """Evaluate `checkpoint` (best, latest, a step, or `start`: the initial policy).

    With hints the panel is played without them too: is a teacher that sees them informative?
    `data` puts other tasks in place of the run's own.
    """
    if data is not None:
        settings = with_data(settings, data)
        split, num_tasks = split or "test", num_tasks or sys.maxsize
    prepare_process(settings.run.num_threads)
    method = Method(settings.method, view_of(settings.teacher))  # pyright: ignore
    policy = build_policy(settings, method)
    loaded = _load(policy, directory, checkpoint)
    step = 0 if loaded is None else loaded.step
    panel = dataclasses.replace(
        settings.eval,
        panel=split or settings.eval.panel,
        hints=list(hints),
        samples_per_task=samples or settings.eval.samples_per_task,
        num_tasks=num_tasks or settings.eval.num_tasks,
    )
    env: Any = build_part("env", settings.env, Env)
    try:
        workshop = build_workshop(settings, env, policy, method)
        if loaded is not None and workshop.reward.stateful:
            workshop.reward.load_state_dict(loaded.state().get("reward", {}))
        workshop.rollout.load_weights(policy.weights(), version=step)
        evaluation = _played(workshop, panel, step)
        against = None
        if hints:
            plain = _played(workshop, dataclasses.replace(panel, hints=[]), step)
            against = improvement(plain, evaluation)
    finally:
        env.close()
    if data is not None:
        panel = dataclasses.replace(panel, num_tasks=len(evaluation.task_ids))
    path = directory / "evaluations" / _file_name(panel, checkpoint, step, data)
    evaluation.save(path)
    return EvalReport(evaluation=evaluation, path=path, against_plain=against)


def _played(workshop: TrainingWorkshop, panel: EvalSettings, step: int) -> Evaluation:
    try:
        return evaluate_panel(workshop, panel, step)[0]
    except ConfigError as error:
        if not str(error).startswith("rollout."):
            raise
        raise ConfigError(
            f"{error}. These are settings of the run, and eval takes them as they are: start a "
            "new run with others, or evaluate other tasks"
        ) from error


def with_data(settings: TrainSettings, data: str) -> TrainSettings:
    """Return the settings with other tasks, all of them in the split `test` unless they say."""
    changes = {"data": data, "validation_fraction": 0.0, "test_fraction": 1.0}
    known = {field.name for field in dataclasses.fields(settings.env)}
    if not known.issuperset(changes):
        raise ConfigError(
            f"data={data}: the run's environment ({type(settings.env).__name__}) has no settings "
            f"{', '.join(sorted(changes.keys() - known))}; expected env=code, or leave data out"
        )
    return dataclasses.replace(settings, env=dataclasses.replace(settings.env, **changes))


def _load(policy: CausalPolicy, directory: Path, checkpoint: str) -> Checkpoint | None:
    """Load a checkpoint's weights; return it, None for `start`."""
    if checkpoint == "start":
        return None
    found = find_checkpoint(directory, checkpoint)
    policy.load(found.policy)
    return found


def _file_name(panel: EvalSettings, checkpoint: str, step: int, data: str | None) -> str:
    """Tells apart what differs; the loop's own evaluations have another name."""
    name = "start" if checkpoint == "start" else f"step_{step:06d}"
    other = [] if data is None else [Path(data).name.partition(".")[0]]
    size = f"{panel.num_tasks}x{panel.samples_per_task}"
    return "_".join([name, *other, panel.panel, size, *panel.hints]) + ".json"
