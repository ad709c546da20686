"""How far the trainer's log-probabilities are from those that the rollout engine recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from selfdistill_cli.core.types import Group, PolicyOutput, Sample
from selfdistill_cli.losses.divergence import k3


@dataclass(kw_only=True)
class SamplerGap:
    """Sums over the first update of a step, where both sides have the same weights.

    It costs no pass: the update computes the trainer's side anyway. Replayed and demonstrated
    samples are left out, because other weights or nobody sampled them.
    """

    fresh: frozenset[int]
    """Identities of the samples that the present weights sampled."""
    totals: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """Summed |difference|, summed k3, and number of tokens."""
    largest: float = 0.0
    """Largest |difference| of one token."""

    @classmethod
    def of(cls, groups: Sequence[Group], version: int) -> SamplerGap:
        """Watch the samples of groups that the weights of `version` played."""
        played = [
            group
            for group in groups
            if group.trajectories and all(t.policy_version == version for t in group.trajectories)
        ]
        return cls(fresh=frozenset(id(s) for group in played for s in group.samples))

    def add(self, samples: Sequence[Sample], output: PolicyOutput) -> None:
        """Add a micro-batch: row i of `output` is about sample i."""
        for row, sample in enumerate(samples):
            if id(sample) not in self.fresh:
                continue
            mask = torch.from_numpy(sample.action_mask)
            trainer = output.logprobs[row, : len(mask)].detach().float().cpu()[mask]
            sampler = torch.from_numpy(sample.sampled_logprobs)[mask]
            if len(sampler) == 0:
                continue
            gap = (trainer - sampler).abs()
            everything = torch.ones_like(gap, dtype=torch.bool)
            found = (gap.sum(), k3(sampler, trainer, everything).sum(), len(gap))
            self.totals = [a + float(b) for a, b in zip(self.totals, found, strict=True)]
            self.largest = max(self.largest, float(gap.max()))

    def metrics(
        self, gather: Callable[[tuple[list[float], float]], list[tuple[list[float], float]]]
    ) -> dict[str, float]:
        """Mean, largest and KL over all ranks; empty where nothing was compared."""
        parts = gather((self.totals, self.largest))
        difference, kl, count = (sum(column) for column in zip(*(p[0] for p in parts), strict=True))
        if count == 0:
            return {}
        return {
            "rollout/gap_mean": difference / count,
            "rollout/gap_max": max(largest for _, largest in parts),
            "rollout/gap_kl": kl / count,
        }
