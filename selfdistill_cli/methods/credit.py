"""Credits: how is a trajectory's advantage spread over its tokens?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from selfdistill_cli.core.needs import Need
from selfdistill_cli.core.protocols import Metrics
from selfdistill_cli.core.types import Group, Sample
from selfdistill_cli.losses import value_weights as gear
from selfdistill_cli.losses.cleaning import keep_active, row_mean
from selfdistill_cli.methods.arrays import (
    all_samples,
    masks,
    pad,
    per_sample,
    present,
    trajectory_rewards,
)
from selfdistill_cli.methods.coefficients import coefficient
from selfdistill_cli.methods.credit_settings import UniformSettings, ValueGapSettings
from selfdistill_cli.methods.reweighting import advantages_of, reweighted, unchanged
from selfdistill_cli.methods.stateless import Stateless
from selfdistill_cli.methods.value_head import DistilledValueHead


class Uniform(Stateless):
    """Every token keeps its trajectory's advantage."""

    def __init__(self, settings: UniformSettings):
        self.settings = settings

    def reweight(self, groups: Sequence[Group], step: int) -> tuple[list[Group], Metrics]:
        """Return the groups unchanged."""
        return list(groups), {}

    def after_step(self, groups: Sequence[Group], step: int) -> Metrics:
        """Nothing to learn."""
        return {}


class ValueGap:
    """GEAR, specification form: A * ((1 - ramp) + ramp * w), w from V_distill - V_orig.

    V_distill is a linear head on the last hidden layer, fitted to the discounted
    return-to-go of winners after each update. The weights of a batch come from the head as it
    was *before* that batch (a frozen target), and are 1 until the head was fitted. Weights
    depend on states only: they say where in a trajectory its advantage counts, not which token
    of two was the better one.
    """

    def __init__(self, settings: ValueGapSettings):
        self.settings = settings
        self.ramp = coefficient(settings.ramp)
        self.head = DistilledValueHead(settings)
        more: set[Need] = {"values"} if settings.v_orig == "critic" else set()
        more |= {"key_tokens"} if settings.targets == "key_tokens" else set()
        self.needs = frozenset({"hidden", *more})

    def reweight(self, groups: Sequence[Group], step: int) -> tuple[list[Group], Metrics]:
        """Change `advantages` by the previous head's weights; also return credit metrics."""
        samples, ramp = all_samples(groups), self.ramp(step)
        if not samples or self.head.num_fits < self.settings.warmup_fits:
            return unchanged(groups, ramp)
        mask, s = masks(samples), self.settings
        raw, weights = self._weights(groups, samples, mask)
        saturation = gear.saturation_fraction(raw, s.clip_low, s.clip_high, mask)
        return reweighted(groups, weights, ramp, saturation)

    def _weights(
        self,
        groups: Sequence[Group],
        samples: Sequence[Sample],
        mask: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        s, advantages = self.settings, advantages_of(samples)
        values = self.head.predict(samples)
        original = self._original_values(groups, samples)
        if s.standardize:
            values, original = standardized(values - original, mask), torch.zeros_like(values)
        form: dict[str, Any] = {
            "form": s.form,
            "temperature": s.temperature,
            "exp_clamp": s.exp_clamp,
            "ratio_delta": s.ratio_delta,
        }
        raw = gear.value_weights(
            values, original, advantages, mask,
            **form, clip_lo=None, clip_hi=None, normalize=False,
        )  # fmt: skip
        weights = gear.value_weights(
            values, original, advantages, mask,
            **form, clip_lo=s.clip_low, clip_hi=s.clip_high, normalize=s.normalize,
        )  # fmt: skip
        return raw, weights

    def _original_values(
        self, groups: Sequence[Group], samples: Sequence[Sample]
    ) -> torch.Tensor:
        """V_orig [B,T]: the critic's values, the siblings' mean reward, or 0."""
        mask = masks(samples)
        if self.settings.v_orig == "critic":
            return pad([present(sample.values) for sample in samples])
        if self.settings.v_orig == "zero":
            return torch.zeros(mask.shape)
        rewards, group_ids = trajectory_rewards(groups)
        means = torch.zeros(len(groups), dtype=rewards.dtype).index_add(0, group_ids, rewards)
        counts = torch.bincount(group_ids, minlength=len(groups)).clamp(min=1)
        by_row = per_sample(groups, (means / counts)[group_ids]).float()
        return by_row[:, None].expand(mask.shape)

    def after_step(self, groups: Sequence[Group], step: int) -> Metrics:
        """Fit the head to this step's winners, for the next step's weights."""
        rewards, group_ids = trajectory_rewards(groups)
        won = gear.winners(rewards, group_ids, self.settings.winner_fraction)
        chosen = per_sample(groups, won.double()) > 0.5
        rows = [i for i, yes in enumerate(chosen.tolist()) if yes]
        if not rows:
            return {"credit/num_winners": 0.0}
        samples = all_samples(groups)
        by_row = per_sample(groups, rewards)
        fit = self.head.fit([samples[i] for i in rows], by_row[rows].float())
        return {"credit/num_winners": float(won.sum()), **fit}

    def state_dict(self) -> dict[str, Any]:
        """The head, its moving average, its optimizer and the number of fits."""
        return {"head": self.head.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.head.load_state_dict(state["head"])


def standardized(gap: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean 0 and standard deviation 1 over each row's active tokens [B,T]; a flat row gives 0."""
    centred = keep_active(gap - row_mean(gap, mask)[:, None], mask)
    std = row_mean(centred.square(), mask).sqrt()[:, None]
    return torch.where(std > 0, centred / std.clamp(min=1e-8), torch.zeros_like(centred))
