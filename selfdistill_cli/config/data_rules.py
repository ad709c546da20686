"""What only the user's files can tell: that they can be read, and that every split has tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from selfdistill_cli.config.value_rules import declared, splits_asked
from selfdistill_cli.core.errors import UserError
from selfdistill_cli.core.parts import build_part
from selfdistill_cli.core.protocols import Env
from selfdistill_cli.training.settings import TrainSettings

REMEDIES = {
    "eval.panel": "or train without evaluation: eval.every=0",
    "method.source.demonstrations": 'demonstrations are lines of "train" with a solution',
}


def problems_with_files(settings: TrainSettings) -> list[str]:
    """Return what is wrong with the environment's files, by reading them; empty if it reads none.

    A run finds the same when it starts, so it does not ask here and read them twice.
    """
    if declared(settings.env, "task_counts") is None:
        return []
    try:
        env: Any = build_part("env", settings.env, Env)
        try:
            counts: Mapping[str, int] | None = env.task_counts()
        finally:
            env.close()
    except UserError as error:
        return [str(error)]
    return [] if counts is None else list(_empty_splits(settings, counts))


def _empty_splits(settings: TrainSettings, counts: Mapping[str, int]) -> Iterator[str]:
    there = ", ".join(f"{split} {count}" for split, count in counts.items())
    for key, split in splits_asked(settings).items():
        if split is not None and not counts.get(split, 1):
            remedy = f"; {REMEDIES[key]}" if key in REMEDIES else ""
            yield (
                f"{key}: split '{split}' has no task (found {there}); add tasks, give lines a "
                f'field "split", or change env.validation_fraction, env.test_fraction{remedy}'
            )
