"""Guards: stop, or warn, when a run went wrong; everything computed so far is kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from selfdistill_cli.core.errors import RunError
from selfdistill_cli.training.settings import GuardSettings


class Guards:
    """Watches the loss and the mean reward. Its memory is part of the checkpoint."""

    def __init__(self, settings: GuardSettings, warn: Callable[[str], None]):
        self.settings = settings
        self.warn = warn
        self.recent: list[float] = []
        self.best = 0.0
        self.warned = False
        self.uninformed = False

    def check_loss(self, step: int, losses: Mapping[str, float]) -> None:
        """Raise RunError (or warn) if a term of the loss is not finite."""
        bad = [name for name, value in losses.items() if not math.isfinite(value)]
        if not bad:
            return
        text = f"step {step}: {', '.join(bad)} is not finite"
        if self.settings.on_nonfinite == "stop":
            raise RunError(
                f"{text}. Lower optim.lr, or that term's coefficient, or look at the last "
                "trajectories for the sample that caused it; the last checkpoint is intact."
            )
        self.warn(text)

    def check_reward(self, step: int, reward: float | None) -> None:
        """Raise RunError (or warn, once) if the mean reward collapsed."""
        s = self.settings
        if reward is None or s.on_collapse == "off":
            return
        self.recent = [*self.recent, reward][-s.collapse_window :]
        if len(self.recent) < s.collapse_window:
            return
        mean = sum(self.recent) / len(self.recent)
        self.best = max(self.best, mean)
        if mean >= s.collapse_fraction * self.best:
            return
        text = (
            f"step {step}: the reward collapsed: its mean over {s.collapse_window} steps is "
            f"{mean:.3f}, the best was {self.best:.3f}"
        )
        if s.on_collapse == "stop":
            raise RunError(
                f"{text}. Lower optim.lr and start from checkpoints/best; if the environment or "
                "the data changed, mend that; or set guards.on_collapse=warn to go on."
            )
        if not self.warned:
            self.warn(text)
        self.warned = True

    def check_teacher(self, step: int, informed_fraction: float | None) -> None:
        """Warn, once, if no sample's teacher found any of its hints."""
        if informed_fraction != 0.0 or self.uninformed:
            return
        self.uninformed = True
        self.warn(
            f"step {step}: the teacher found none of its hints for any sample, so it knows no more "
            "than the student; the environment's data may lack what the hints are made of "
            "(teacher.hints, docs/data.md)"
        )

    def state_dict(self) -> dict[str, Any]:
        """The window, the best mean and whether a warning was given."""
        return {"recent": list(self.recent), "best": self.best, "warned": self.warned}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.recent = list(state["recent"])
        self.best = float(state["best"])
        self.warned = bool(state["warned"])
