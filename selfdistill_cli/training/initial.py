"""Where a run's first weights come from: the policy's own, or another run's checkpoint."""

from __future__ import annotations

from pathlib import Path

from selfdistill_cli.policies.causal import CausalPolicy
from selfdistill_cli.training.checkpoints import Checkpoint, Checkpoints
from selfdistill_cli.training.run_directory import find_run
from selfdistill_cli.training.settings import CheckpointSettings


def find_checkpoint(directory: Path, which: str) -> Checkpoint:
    """Return a run's checkpoint: latest, best, or a step."""
    keep_all = CheckpointSettings(every=0, keep=1, best_metric="eval/success")
    return Checkpoints(directory / "checkpoints", keep_all).named(which)


def initial_weights(policy: CausalPolicy, init_from: str | None, root: str) -> None:
    """Load `policy.init_from=RUN[:best|:latest|:STEP]`, default best where there is one."""
    if init_from is None:
        return
    name, _, which = init_from.partition(":")
    directory = find_run(name, root)
    if not which:
        which = "best" if (directory / "checkpoints" / "best").exists() else "latest"
    policy.load(find_checkpoint(directory, which).policy)
