"""Advantages: how good was this trajectory?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from selfdistill_cli.core.types import FloatArray, Group, Sample
from selfdistill_cli.losses.advantages import generalized_advantage, group_advantage
from selfdistill_cli.methods.arrays import (
    all_samples,
    map_rows,
    masks,
    pad,
    per_sample,
    trajectory_rewards,
    unpad,
)
from selfdistill_cli.methods.settings import (
    GeneralizedAdvantageSettings,
    GroupAdvantageSettings,
    NoAdvantageSettings,
)
from selfdistill_cli.methods.stateless import Stateless


class GroupAdvantage(Stateless):
    """One number per trajectory, from its siblings' rewards, at each of its active tokens."""

    def __init__(self, settings: GroupAdvantageSettings):
        self.settings = settings

    def assign(self, groups: Sequence[Group]) -> list[Group]:
        """Fill `advantages`; rejected trajectories count in no baseline."""
        rewards, group_ids = trajectory_rewards(groups)
        advantages, _ = group_advantage(
            rewards, group_ids, self.settings.mode, self.settings.epsilon
        )
        by_row = per_sample(groups, advantages)

        def fill(sample: Sample, row: int) -> Sample:
            flat = np.where(sample.action_mask, float(by_row[row]), 0.0).astype(np.float32)
            return replace(sample, advantages=flat)

        return map_rows(groups, fill)


class GeneralizedAdvantage(Stateless):
    """GAE with the terminal reward at the trajectory's last active token (arXiv 1506.02438)."""

    needs = frozenset({"values"})

    def __init__(self, settings: GeneralizedAdvantageSettings):
        self.settings = settings

    def assign(self, groups: Sequence[Group]) -> list[Group]:
        """Fill `rewards`, `returns` and `advantages`."""
        groups = [_place_rewards(group) for group in groups]
        samples = all_samples(groups)
        if not samples:
            return groups
        s, mask = self.settings, masks(samples)
        advantages, returns = generalized_advantage(
            pad([_filled(x.rewards) for x in samples]),
            pad([_filled(x.values) for x in samples]),
            mask,
            s.gamma,
            s.lam,
            torch.tensor([x.truncated for x in samples]),
            torch.tensor([x.bootstrap_value for x in samples]),
        )
        if s.whiten:
            advantages = _whiten(advantages, mask)
        rows = list(zip(unpad(advantages, samples), unpad(returns, samples), strict=True))
        return map_rows(
            groups, lambda x, row: replace(x, advantages=rows[row][0], returns=rows[row][1])
        )


class NoAdvantage(Stateless):
    """Advantage 0 everywhere: the recipe has no policy gradient."""

    def __init__(self, settings: NoAdvantageSettings):
        self.settings = settings

    def assign(self, groups: Sequence[Group]) -> list[Group]:
        """Fill `advantages` with zeros."""
        return map_rows(
            groups,
            lambda x, _: replace(x, advantages=np.zeros(len(x.token_ids), dtype=np.float32)),
        )


def _filled(array: FloatArray | None) -> FloatArray:
    assert array is not None, "the judge phase computes what a part needs"
    return array


def _place_rewards(group: Group) -> Group:
    """Put each trajectory's total on the last active token of its last sample.

    A trajectory that was cut into several samples goes on: the earlier ones bootstrap from the
    value of the next sample's first active token.
    """
    totals = {
        trajectory.sibling: score.total
        for trajectory, score in zip(group.trajectories, group.scores, strict=True)
    }
    out: list[Sample] = []
    following: Sample | None = None
    for sample in reversed(group.samples):
        active = np.flatnonzero(sample.action_mask)
        rewards = np.zeros(len(sample.token_ids), dtype=np.float32)
        if following is not None and following.sibling == sample.sibling:
            first = int(np.flatnonzero(following.action_mask)[0])
            value = float(_filled(following.values)[first])
            sample = replace(sample, truncated=True, bootstrap_value=value)
        elif len(active):
            rewards[active[-1]] = totals[sample.sibling] or 0.0
        following = sample
        out.append(replace(sample, rewards=rewards))
    return replace(group, samples=tuple(reversed(out)))


def _whiten(advantages: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean 0 and standard deviation 1 over the active tokens [B,T]; flat input gives 0."""
    active = advantages[mask]
    if active.numel() < 2 or active.max() == active.min():
        return torch.zeros_like(advantages)
    scaled = (advantages - active.mean()) / (active.std() + 1e-8)
    return torch.where(mask, scaled, torch.zeros_like(scaled))
