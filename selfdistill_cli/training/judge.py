"""Judge: compute what the parts need of the sampled tokens, once, then ask what each is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from selfdistill_cli.core.needs import DivergenceNeed, Needs
from selfdistill_cli.core.types import FloatArray, Group, Sample
from selfdistill_cli.losses.distribution import entropy
from selfdistill_cli.methods.method import Method
from selfdistill_cli.training.scorers import Unembedding, scored_rows
from selfdistill_cli.training.text_marks import with_text_marks
from selfdistill_cli.training.views import with_view

if TYPE_CHECKING:
    from selfdistill_cli.training.run import Run

@dataclass(frozen=True, kw_only=True)
class Judged:
    """Samples with advantages, and what the learning phase needs besides."""

    groups: list[Group]
    """Groups whose samples carry old log-probs, views, advantages and weights."""
    metrics: dict[str, float]
    """What the parts found."""
    unembeddings: Mapping[str, Unembedding]
    """Of the views whose hidden states are kept, by view name."""


def judge(run: Run, groups: list[Group], step: int) -> Judged:
    """Fill old log-probs, values, hidden states and views; then advantages and credit."""
    groups = [replace(g, samples=tuple(_with_old(list(g.samples)))) for g in groups]
    groups = _rescored(run, groups, reads_hidden(run.method))
    needs = run.method.judge_needs
    if "values" in needs or run.method.needs_critic:
        groups = [_with_values(run, group) for group in groups]
    if "entropy" in needs:
        groups = _with_entropy(run, groups)
    groups = with_text_marks(run, groups, needs)
    unembeddings: dict[str, Unembedding] = {}
    for name in run.method.views:
        groups, unembedding = with_view(run, groups, name, step)
        if unembedding is not None:
            unembeddings[name] = unembedding
    judged, metrics = run.method.judge(groups, step)
    return Judged(groups=judged, metrics=dict(metrics), unembeddings=unembeddings)


def _with_old(samples: list[Sample]) -> list[Sample]:
    return [replace(sample, old_logprobs=sample.sampled_logprobs) for sample in samples]


def reads_hidden(method: Method) -> bool:
    """Whether anything is computed from the student's hidden states when judging."""
    needs, forward = method.judge_needs, method.forward_needs
    words = needs & {"hidden", "values", "entropy"}
    divergences = any(isinstance(need, DivergenceNeed) for need in needs)
    student_topk = any(
        isinstance(need, DivergenceNeed) and need.support == "student_topk" for need in forward
    )
    signal = any(getattr(view, "is_signal", False) for view in method.views.values())
    return bool(words) or divergences or student_topk or signal or method.needs_critic


def _rescored(run: Run, groups: list[Group], with_hidden: bool) -> list[Group]:
    """One scoring pass for what the rollout did not give: replayed and demonstrated samples."""
    recompute = run.method.settings.old_logprobs == "recomputed"
    stale = {id(s) for group in groups if _is_replayed(run, group) for s in group.samples}
    if not run.method.views:
        stale = set[int]()
    samples = [sample for group in groups for sample in group.samples]
    lacking = [
        s for s in samples if recompute or id(s) in stale or (with_hidden and s.hidden is None)
    ]
    if not lacking:
        return groups
    needs: Needs = frozenset({"hidden"}) if with_hidden else frozenset()

    def rescore(samples: list[Sample]) -> list[tuple[FloatArray, FloatArray | None]]:
        found: dict[int, tuple[FloatArray, FloatArray | None]] = {}
        for index, output in scored_rows(run, samples, needs, run.engine.score):
            hidden = None if output.hidden is None else output.hidden[0].float().numpy()
            found[index] = output.logprobs[0].numpy(), hidden
        return [found[i] for i in range(len(samples))]

    scores = run.world.shared(lacking, rescore, costs=[float(len(s.token_ids)) for s in lacking])
    filled: dict[int, Sample] = {}
    for old, (logprobs, hidden) in zip(lacking, scores, strict=True):
        sample = old if hidden is None else replace(old, hidden=hidden)
        if recompute:
            sample = replace(sample, old_logprobs=logprobs)
        elif id(old) in stale:
            sample = replace(sample, current_logprobs=logprobs)
        filled[id(old)] = sample
    return [replace(g, samples=tuple(filled.get(id(s), s) for s in g.samples)) for g in groups]


def _is_replayed(run: Run, group: Group) -> bool:
    """Whether an earlier student sampled the group."""
    return any(t.policy_version != run.workshop.version for t in group.trajectories)


def _with_values(run: Run, group: Group) -> Group:
    """The critic's values from the cached hidden states: one small matrix product."""
    head = run.policy.value_head
    assert head is not None, "a term that needs a critic created it"

    def fill(sample: Sample) -> Sample:
        assert sample.hidden is not None
        with torch.no_grad():
            hidden = torch.from_numpy(sample.hidden).to(head.weight)
            values = head(hidden).squeeze(-1).float().cpu().numpy()
        return replace(sample, values=np.where(sample.action_mask, values, 0.0).astype(np.float32))

    return replace(group, samples=tuple(fill(sample) for sample in group.samples))


def _with_entropy(run: Run, groups: list[Group]) -> list[Group]:
    """The entropy of the sampling distribution, from the cached hidden states."""
    weight, bias = run.policy.unembedding()

    def of_sample(sample: Sample) -> FloatArray:
        assert sample.hidden is not None
        hidden = torch.from_numpy(sample.hidden[sample.action_mask]).to(weight)
        out = np.zeros(len(sample.token_ids), dtype=np.float32)
        found = entropy(hidden, weight, bias, temperature=run.policy.temperature or 1.0)
        out[sample.action_mask] = found.float().cpu().numpy()
        return out

    samples = [sample for group in groups for sample in group.samples]
    costs = [float(len(sample.token_ids)) for sample in samples]
    found = iter(run.world.shared(samples, lambda own: map(of_sample, own), costs=costs))
    return [
        replace(group, samples=tuple(replace(s, entropy=next(found)) for s in group.samples))
        for group in groups
    ]
