"""Between ragged samples (numpy, one row each) and padded tensors [B,T]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from selfdistill_cli.core.types import FloatArray, Group, Sample, Score

Scalar = TypeVar("Scalar", bound=np.generic)


def all_samples(groups: Sequence[Group]) -> list[Sample]:
    """Samples of all groups, in order."""
    return [sample for group in groups for sample in group.samples]


def with_samples(groups: Sequence[Group], samples: Sequence[Sample]) -> list[Group]:
    """Put samples back into their groups; the inverse of `all_samples`."""
    out: list[Group] = []
    position = 0
    for group in groups:
        end = position + len(group.samples)
        out.append(replace(group, samples=tuple(samples[position:end])))
        position = end
    return out


def present(array: npt.NDArray[Scalar] | None) -> npt.NDArray[Scalar]:
    """An array of a sample that a part declared to need, and the judge phase therefore filled."""
    assert array is not None, "the judge phase computes what a part needs"
    return array


def pad(rows: Sequence[npt.NDArray[np.generic]]) -> torch.Tensor:
    """Stack rows of unequal length [T_i, ...] as [B, T, ...], filled with zeros on the right."""
    length = max((len(row) for row in rows), default=0)
    out = np.zeros((len(rows), length, *rows[0].shape[1:]), dtype=rows[0].dtype)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return torch.from_numpy(out)


def unpad(padded: torch.Tensor, samples: Sequence[Sample]) -> list[FloatArray]:
    """Cut [B,T] back into rows as long as their samples."""
    array = padded.detach().cpu().numpy().astype(np.float32)
    return [array[i, : len(sample.token_ids)].copy() for i, sample in enumerate(samples)]


def student_logprobs(samples: Sequence[Sample]) -> torch.Tensor:
    """Log-probabilities of the student as it is now [B,T]: what a view is compared with."""
    return pad([student_row(sample) for sample in samples])


def student_row(sample: Sample) -> FloatArray:
    """The same of one sample [T]."""
    current = sample.current_logprobs
    return present(sample.old_logprobs) if current is None else current


def masks(samples: Sequence[Sample]) -> torch.Tensor:
    """Action masks as [B,T] bool."""
    return pad([sample.action_mask for sample in samples])


def trajectory_rewards(groups: Sequence[Group]) -> tuple[torch.Tensor, torch.Tensor]:
    """Rewards of accepted trajectories and their group numbers, both [N], in order."""
    pairs = [
        (score.total, number)
        for number, group in enumerate(groups)
        for score in group.scores
        if score.total is not None
    ]
    rewards = torch.tensor([pair[0] for pair in pairs], dtype=torch.float64)
    return rewards, torch.tensor([pair[1] for pair in pairs], dtype=torch.long)


def per_sample(groups: Sequence[Group], values: torch.Tensor) -> torch.Tensor:
    """Spread one value per accepted trajectory [N] over its samples [B]; demonstrations get 0."""
    lookup = iter(values.tolist())
    out: list[float] = []
    for group in groups:
        by_sibling = {
            trajectory.sibling: next(lookup)
            for trajectory, score in zip(group.trajectories, group.scores, strict=True)
            if score.total is not None
        }
        out.extend(by_sibling.get(sample.sibling, 0.0) for sample in group.samples)
    return torch.tensor(out, dtype=values.dtype)


def per_trajectory(groups: Sequence[Group], read: Callable[[Score], float]) -> torch.Tensor:
    """What `read` says of each sample's score [B], float64; demonstrations count as solved, 1."""
    out: list[float] = []
    for group in groups:
        by_sibling = {
            trajectory.sibling: read(score)
            for trajectory, score in zip(group.trajectories, group.scores, strict=True)
        }
        out.extend(by_sibling.get(sample.sibling, 1.0) for sample in group.samples)
    return torch.tensor(out, dtype=torch.float64)


def map_rows(groups: Sequence[Group], fill: Callable[[Sample, int], Sample]) -> list[Group]:
    """Replace every sample by `fill(sample, row)`."""
    samples = all_samples(groups)
    return with_samples(groups, [fill(sample, row) for row, sample in enumerate(samples)])
