"""What every credit does with its weights: ramp them in, keep them to be read, describe them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from selfdistill_cli.core.types import Group, Sample
from selfdistill_cli.losses.value_weights import apply_weights, within_trajectory_std
from selfdistill_cli.methods.arrays import all_samples, map_rows, masks, pad, present, unpad

CREDIT = "credit"
"""Name under which the weights, after the ramp, stand in `Sample.weights`."""


def advantages_of(samples: Sequence[Sample]) -> torch.Tensor:
    """Advantages as they were assigned [B,T]."""
    return pad([present(sample.advantages) for sample in samples])


def reweighted(
    groups: Sequence[Group], weights: torch.Tensor, ramp: float, saturation: float
) -> tuple[list[Group], dict[str, float]]:
    """Multiply advantages by (1 - ramp) + ramp * weights [B,T]; also return credit metrics."""
    samples = all_samples(groups)
    changed = unpad(apply_weights(advantages_of(samples), weights, ramp), samples)
    shown = unpad(apply_weights(torch.ones_like(weights), weights, ramp), samples)

    def fill(sample: Sample, row: int) -> Sample:
        seen = {**sample.weights, CREDIT: shown[row]}
        return replace(sample, advantages=changed[row], weights=seen)

    return map_rows(groups, fill), _metrics(weights, masks(samples), saturation, ramp)


def unchanged(groups: Sequence[Group], ramp: float) -> tuple[list[Group], dict[str, float]]:
    """All weights are 1."""
    one = torch.ones(1, 1)
    return list(groups), _metrics(one, one.bool(), 0.0, ramp)


def _metrics(
    weights: torch.Tensor, mask: torch.Tensor, saturation: float, ramp: float
) -> dict[str, float]:
    active = weights[mask]
    if not len(active):
        return {"credit/ramp": ramp}
    return {
        "credit/weight_mean": float(active.mean()),
        "credit/weight_min": float(active.min()),
        "credit/weight_max": float(active.max()),
        "credit/saturation_fraction": saturation,
        "credit/within_traj_std": within_trajectory_std(weights, mask),
        "credit/ramp": ramp,
    }
