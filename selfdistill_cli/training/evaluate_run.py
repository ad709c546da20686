"""`selfdistill eval RUN`: a checkpoint of a run on a panel, with an interval."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from selfdistill_cli.core.hints import HintKind
from selfdistill_cli.methods.method import Method
from selfdistill_cli.training.evaluation import Evaluation, evaluate_panel
from selfdistill_cli.training.initial import find_checkpoint
from selfdistill_cli.training.settings import EvalSettings, TrainSettings
from selfdistill_cli.training.start import build_policy, build_workshop, prepare_process, view_of


def evaluate_run(
    settings: TrainSettings,
    directory: Path,
    *,
    split: str | None = None,
    checkpoint: str = "best",
    hints: Sequence[HintKind] = (),
    samples: int | None = None,
    num_tasks: int | None = None,
) -> tuple[Evaluation, Path]:
    """Evaluate `checkpoint` (best, latest, a step, or `start`: the initial policy).

    Returns the evaluation and the file under `evaluations/` that holds every attempt.
    """
    prepare_process(settings.run.num_threads)
    method = Method(settings.method, view_of(settings.teacher))  # pyright: ignore
    policy = build_policy(settings, method)
    step = 0
    if checkpoint != "start":
        found = find_checkpoint(directory, checkpoint)
        policy.load(found.policy)
        step = found.step
    panel = _panel(settings.eval, split, hints, samples, num_tasks)
    env: Any = settings.env.build()
    try:
        workshop = build_workshop(settings, env, policy, method)
        evaluation, _ = evaluate_panel(workshop, panel, step)
    finally:
        env.close()
    name = "_".join([f"step_{step:06d}", panel.panel, *(panel.hints or ["plain"])])
    path = directory / "evaluations" / f"{name}.json"
    evaluation.save(path)
    return evaluation, path


def _panel(
    base: EvalSettings,
    split: str | None,
    hints: Sequence[HintKind],
    samples: int | None,
    num_tasks: int | None,
) -> EvalSettings:
    return dataclasses.replace(
        base,
        panel=split or base.panel,
        hints=list(hints),
        samples_per_task=samples or base.samples_per_task,
        num_tasks=num_tasks or base.num_tasks,
    )
