"""Whether this process is a trial of a W&B sweep: its agent says so in the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass

OF_A_TRIAL = ("WANDB_SWEEP_ID", "WANDB_RUN_ID", "WANDB_SWEEP_PARAM_PATH")
"""What W&B's agent sets for a trial."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A trial that W&B's agent started."""

    sweep: str
    """Id of the sweep."""
    run_id: str
    """Id of the W&B run; the same when the agent starts the trial again."""


def current_trial() -> Trial | None:
    """The trial that this process is, if it is one."""
    sweep, run_id = (os.environ.get(name, "") for name in OF_A_TRIAL[:2])
    return Trial(sweep=sweep, run_id=run_id) if sweep and run_id else None
