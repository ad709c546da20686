"""Guards: stop, or warn, when a run went wrong; everything computed so far is kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from selfdistill_cli.core.errors import Diverged
from selfdistill_cli.training.settings import GuardSettings

LEAST_PAIRS = 20
"""Fewer pairs of attempts say nothing about a reward."""


class Guards:
    """Watches the loss and the mean reward. Its memory is part of the checkpoint."""

    def __init__(self, settings: GuardSettings, warn: Callable[[str], None]):
        self.settings = settings
        self.warn = warn
        self.recent: list[float] = []
        self.best = 0.0
        self.warned = False
        self.uninformed = False
        self.unscored = False
        self.ranked: list[list[float]] = []
        self.rank_warned = False

    def check_loss(self, step: int, losses: Mapping[str, float]) -> None:
        """Raise Diverged (or warn) if a term of the loss is not finite."""
        bad = [name for name, value in losses.items() if not math.isfinite(value)]
        if not bad:
            return
        text = f"step {step}: {', '.join(bad)} is not finite"
        if self.settings.on_nonfinite == "stop":
            raise Diverged(
                f"{text}. Lower optim.lr, or that term's coefficient, or look at the last "
                "trajectories for the sample that caused it; the last checkpoint is intact."
            )
        self.warn(text)

    def check_reward(self, step: int, reward: float | None, name: str = "reward/mean") -> None:
        """Raise Diverged (or warn, once) if the mean reward, or what stands for it, collapsed."""
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
            f"step {step}: {name} collapsed: its mean over {s.collapse_window} steps is "
            f"{mean:.3f}, the best was {self.best:.3f}"
        )
        if s.on_collapse == "stop":
            raise Diverged(
                f"{text}. Lower optim.lr and start from checkpoints/best; if the environment or "
                "the data changed, mend that; or set guards.on_collapse=warn to go on."
            )
        if not self.warned:
            self.warn(text)
        self.warned = True

    def check_ranking(self, step: int, metrics: Mapping[str, float]) -> None:
        """Warn, once, if the reward does not put solved attempts above the others.

        Garbage in, garbage out: what cannot rank cannot teach.
        """
        pairs = metrics.get("reward/rank_pairs", 0.0)
        s = self.settings
        right = pairs * metrics.get("reward/rank_concordance", 0.0)
        self.ranked = [*self.ranked, [right, pairs]][-s.rank_window :]
        total = sum(row[1] for row in self.ranked)
        full = len(self.ranked) == s.rank_window and total >= LEAST_PAIRS
        if not full or self.rank_warned:
            return
        share = sum(row[0] for row in self.ranked) / total
        if share < s.rank_floor:
            self.rank_warned = True
            self.warn(
                f"step {step}: the reward cannot rank: over {s.rank_window} steps the solved "
                f"attempt had the higher reward in {share:.2f} of {total:.0f} pairs (0.5 is "
                f"chance, guards.rank_floor={s.rank_floor:g}); selfdistill check reward shows "
                "which component is to blame"
            )

    def check_totals(self, step: int, metrics: Mapping[str, float]) -> None:
        """Warn, once, if episodes were played and not one of them has a total reward."""
        rejected = metrics.get("rollout/rejected", 0.0)
        if self.unscored or not rejected or "reward/mean" in metrics:
            return
        self.unscored = True
        self.warn(
            f"step {step}: all {rejected:.0f} episodes were rejected, because none has a total "
            "reward, so there is nothing to learn from: the reward rates none of the answers (for "
            "reward=recorded: none is in the file; set reward.components.recorded.unrated, or add "
            "a component such as unit_tests), or every one failed (reward/errors/* in "
            "metrics.jsonl, warnings above)"
        )

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
        """The windows, the best mean and whether warnings were given."""
        return {
            "recent": list(self.recent),
            "best": self.best,
            "warned": self.warned,
            "unscored": self.unscored,
            "ranked": [list(row) for row in self.ranked],
            "rank_warned": self.rank_warned,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.recent = list(state["recent"])
        self.best = float(state["best"])
        self.warned = bool(state["warned"])
        self.unscored = bool(state.get("unscored", False))
        self.ranked = [list(row) for row in state.get("ranked", [])]
        self.rank_warned = bool(state.get("rank_warned", False))
