"""Advantages: how good was this trajectory?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from selfdistill_cli.core.types import Group, Sample
from selfdistill_cli.losses.advantages import generalized_advantage, group_advantage, place_rewards
from selfdistill_cli.losses.value_weights import winners
from selfdistill_cli.methods.arrays import (
    all_samples,
    map_rows,
    masks,
    pad,
    per_sample,
    per_trajectory,
    present,
    trajectory_rewards,
    unpad,
)
from selfdistill_cli.methods.reweighting import CREDIT
from selfdistill_cli.methods.settings import (
    GeneralizedAdvantageSettings,
    GroupAdvantageSettings,
    NoAdvantageSettings,
    WinnersSettings,
)
from selfdistill_cli.methods.stateless import Stateless

ROUNDING = 1e-5
"""Relative difference below which two sums of float32 products count as equal."""


class PlainAdvantage(Stateless):
    """An advantage that compares once."""

    def after_credit(self, groups: Sequence[Group]) -> list[Group]:
        """Nothing to compare again."""
        return list(groups)


class GroupAdvantage(Stateless):
    """One number per trajectory, from its siblings' rewards, at each of its active tokens."""

    zero_if_flat = True

    def __init__(self, settings: GroupAdvantageSettings):
        self.settings = settings

    def assign(self, groups: Sequence[Group]) -> list[Group]:
        """Fill `advantages`; rejected trajectories count in no baseline.

        Before a second comparison they are z-scores: a rank or a pair has lost the distances that
        weights could turn round.
        """
        s = self.settings
        rewards, group_ids = trajectory_rewards(groups)
        mode = s.mode if s.rank_by == "reward" else "grpo"
        advantages, _ = group_advantage(rewards, group_ids, mode, s.epsilon)
        return self._filled(groups, advantages)

    def after_credit(self, groups: Sequence[Group]) -> list[Group]:
        """Rank trajectories once more by their reweighted advantages, weights kept inside.

        The specification's way to use token weights with a ranking: the order of siblings comes
        from the mean or sum of A * w, and the new rank is spread by the same weights. Weights with
        mean 1 in every trajectory (`normalize`) leave the means, and so this order, as they were.
        """
        s = self.settings
        if s.rank_by == "reward":
            return list(groups)
        totals, group_ids = _reweighted_totals(groups, mean=s.rank_by == "reweighted_mean")
        totals = _tied(totals, group_ids)
        advantages, _ = group_advantage(totals, group_ids, s.mode, s.epsilon)
        return self._filled(groups, advantages)

    def _filled(self, groups: Sequence[Group], advantages: torch.Tensor) -> list[Group]:
        by_row = per_sample(groups, advantages)

        def fill(sample: Sample, row: int) -> Sample:
            flat = np.where(sample.action_mask, float(by_row[row]), 0.0).astype(np.float32)
            weights = sample.weights.get(CREDIT)
            return replace(sample, advantages=flat if weights is None else flat * weights)

        return map_rows(groups, fill)


class Winners(PlainAdvantage):
    """Advantage 1 for the winners of each group; all other samples are dropped."""

    def __init__(self, settings: WinnersSettings):
        self.settings = settings

    def assign(self, groups: Sequence[Group]) -> list[Group]:
        """Keep winners only (rejection-sampling fine-tuning); ties go to the lower sibling."""
        s = self.settings
        rewards, group_ids = trajectory_rewards(groups)
        won = per_sample(groups, winners(rewards, group_ids, s.fraction).double()) > 0.5
        if s.only_solved:
            solved = per_trajectory(groups, lambda score: score.success) >= 1.0
            flat = torch.tensor([is_flat(g) for g in groups for _ in g.samples], dtype=torch.bool)
            won = solved & (won | flat)
        keep = iter(won.tolist())
        return [
            replace(
                group,
                samples=tuple(
                    _rewarded(x) for x in group.samples if next(keep) or not group.trajectories
                ),
            )
            for group in groups
        ]


class GeneralizedAdvantage(PlainAdvantage):
    """GAE with the terminal reward at the trajectory's last active token (arXiv 1506.02438)."""

    needs = frozenset({"values"})

    def __init__(self, settings: GeneralizedAdvantageSettings):
        self.settings = settings

    def assign(self, groups: Sequence[Group]) -> list[Group]:
        """Fill `rewards`, `returns` and `advantages`."""
        groups = [_bootstrapped(group) for group in groups]
        samples = all_samples(groups)
        if not samples:
            return groups
        s, mask = self.settings, masks(samples)
        turns = pad([x.turn_index for x in samples])
        rewards = place_rewards(mask, turns, None, _terminal_rewards(groups))
        advantages, returns = generalized_advantage(
            rewards,
            pad([present(x.values) for x in samples]),
            mask,
            s.gamma,
            s.lam,
            torch.tensor([x.truncated for x in samples]),
            torch.tensor([x.bootstrap_value for x in samples]),
        )
        if s.whiten:
            advantages = _whiten(advantages, mask)
        columns = [unpad(x, samples) for x in (rewards, advantages, returns)]

        def fill(sample: Sample, row: int) -> Sample:
            given, advantage, target = (column[row] for column in columns)
            return replace(sample, rewards=given, advantages=advantage, returns=target)

        return map_rows(groups, fill)


class NoAdvantage(PlainAdvantage):
    """Advantage 0 everywhere: the recipe has no policy gradient."""

    def __init__(self, settings: NoAdvantageSettings):
        self.settings = settings

    def assign(self, groups: Sequence[Group]) -> list[Group]:
        """Fill `advantages` with zeros."""
        return map_rows(
            groups,
            lambda x, _: replace(x, advantages=np.zeros(len(x.token_ids), dtype=np.float32)),
        )


def is_flat(group: Group) -> bool:
    """Whether all accepted trajectories of a group have the same reward (demonstrations: no)."""
    totals = [score.total for score in group.scores if score.total is not None]
    return bool(group.scores) and (not totals or max(totals) == min(totals))


def _rewarded(sample: Sample) -> Sample:
    return replace(sample, advantages=sample.action_mask.astype(np.float32))


def _reweighted_totals(groups: Sequence[Group], mean: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum or mean over a trajectory's tokens of A * w [N], and the group numbers [N]."""
    values: list[float] = []
    for group in groups:
        for trajectory, score in zip(group.trajectories, group.scores, strict=True):
            if score.total is None:
                continue
            own = [x for x in group.samples if x.sibling == trajectory.sibling]
            total = sum(float(present(x.advantages).sum(dtype=np.float64)) for x in own)
            count = sum(int(x.action_mask.sum()) for x in own)
            values.append(total / max(1, count) if mean else total)
    _, group_ids = trajectory_rewards(groups)
    return torch.tensor(values, dtype=torch.float64), group_ids


def _tied(values: torch.Tensor, group_ids: torch.Tensor) -> torch.Tensor:
    """Make values [N] of one group equal that differ by rounding alone: it must not rank them."""
    out = values.clone()
    for group in group_ids.unique():
        members = group_ids == group
        ordered, order = values[members].sort()
        starts = torch.ones(len(ordered), dtype=torch.bool)
        starts[1:] = ordered.diff() > ROUNDING * ordered.abs().max()
        tied = torch.empty_like(ordered)
        tied[order] = ordered[starts][starts.cumsum(0) - 1]
        out[members] = tied
    return out


def _bootstrapped(group: Group) -> Group:
    """Let the earlier samples of a trajectory that was cut into several go on.

    Each one bootstraps from the value of the next sample's first active token.
    """
    out: list[Sample] = []
    following: Sample | None = None
    for sample in reversed(group.samples):
        if following is not None and following.sibling == sample.sibling:
            first = int(np.flatnonzero(following.action_mask)[0])
            value = float(present(following.values)[first])
            sample = replace(sample, truncated=True, bootstrap_value=value)
        following = sample
        out.append(sample)
    return replace(group, samples=tuple(reversed(out)))


def _terminal_rewards(groups: Sequence[Group]) -> torch.Tensor:
    """Each trajectory's total on its last sample, 0 on earlier ones, [B]."""
    rewards, _ = trajectory_rewards(groups)
    totals = per_sample(groups, rewards).tolist()
    keys = [(number, s.sibling) for number, group in enumerate(groups) for s in group.samples]
    is_last = [key != following for key, following in zip(keys, [*keys[1:], None], strict=True)]
    return torch.tensor([x if last else 0.0 for x, last in zip(totals, is_last, strict=True)])


def _whiten(advantages: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean 0 and standard deviation 1 over the active tokens [B,T]; flat input gives 0."""
    active = advantages[mask]
    if active.numel() < 2 or active.max() == active.min():
        return torch.zeros_like(advantages)
    scaled = (advantages - active.mean()) / (active.std() + 1e-8)
    return torch.where(mask, scaled, torch.zeros_like(scaled))
