"""Judge: compute what the parts need of the sampled tokens, once, then ask what each is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from selfdistill_cli.batching.collate import collate, micro_batches
from selfdistill_cli.batching.samples import in_place_of, with_prompt
from selfdistill_cli.core.settings import ViewSettings
from selfdistill_cli.core.types import Batch, Group, PolicyOutput, Sample, ViewScores

if TYPE_CHECKING:
    from selfdistill_cli.training.run import Run

Scorer = Callable[[Batch, frozenset[str]], PolicyOutput]


def judge(run: Run, groups: list[Group], step: int) -> tuple[list[Group], dict[str, float]]:
    """Fill old log-probs, values, hidden states and views; then advantages and credit."""
    groups = [replace(g, samples=tuple(_with_old(run, list(g.samples)))) for g in groups]
    needs = run.method.judge_needs
    if _lacks(groups, needs) or run.method.settings.old_logprobs == "recomputed":
        groups = _rescored(run, groups, needs)
    if "values" in needs or run.method.needs_critic:
        groups = [_with_values(run, group) for group in groups]
    for name, view in run.method.views.items():
        groups = _with_view(run, groups, name, view)
    judged, metrics = run.method.judge(groups, step)
    return judged, dict(metrics)


def _with_old(run: Run, samples: list[Sample]) -> list[Sample]:
    return [replace(sample, old_logprobs=sample.sampled_logprobs) for sample in samples]


def _lacks(groups: Sequence[Group], needs: frozenset[str]) -> bool:
    wanted = bool(needs & {"hidden", "values"})
    return wanted and any(s.hidden is None for g in groups for s in g.samples)


def score_samples(
    run: Run, samples: Sequence[Sample], needs: frozenset[str], scorer: Scorer
) -> list[PolicyOutput]:
    """Score samples without gradients in micro-batches; one output [1,T] per sample, in order."""
    outputs: dict[int, PolicyOutput] = {}
    for rows in micro_batches([[sample] for sample in samples], run.settings.batch):
        scored = scorer(collate(rows, device=run.engine.device), needs)
        for row, sample in enumerate(rows):
            outputs[id(sample)] = _row(scored, row, len(sample.token_ids))
    return [outputs[id(sample)] for sample in samples]


def _row(output: PolicyOutput, row: int, length: int) -> PolicyOutput:
    def cut(x: torch.Tensor | None) -> torch.Tensor | None:
        return None if x is None else x[row : row + 1, :length].cpu()

    return PolicyOutput(
        logprobs=output.logprobs[row : row + 1, :length].cpu(),
        entropy=cut(output.entropy),
        values=cut(output.values),
        hidden=cut(output.hidden),
    )


def _rescored(run: Run, groups: Sequence[Group], needs: frozenset[str]) -> list[Group]:
    """One scoring pass for what the rollout did not give."""
    samples = [sample for group in groups for sample in group.samples]
    wanted = frozenset({"hidden"}) if needs & {"hidden", "values"} else frozenset[str]()
    outputs = iter(score_samples(run, samples, wanted, run.engine.score))
    recompute = run.method.settings.old_logprobs == "recomputed"

    def fill(sample: Sample) -> Sample:
        output = next(outputs)
        if output.hidden is not None:
            sample = replace(sample, hidden=output.hidden[0].float().numpy())
        return replace(sample, old_logprobs=output.logprobs[0].numpy()) if recompute else sample

    return [replace(g, samples=tuple(fill(s) for s in g.samples)) for g in groups]


def _with_values(run: Run, group: Group) -> Group:
    """The critic's values from the cached hidden states: one small matrix product."""
    head = run.policy.value_head
    assert head is not None, "a term that needs a critic created it"

    def fill(sample: Sample) -> Sample:
        assert sample.hidden is not None
        with torch.no_grad():
            hidden = torch.from_numpy(sample.hidden).to(run.engine.device, torch.float32)
            values = head(hidden).squeeze(-1).cpu().numpy()
        return replace(sample, values=np.where(sample.action_mask, values, 0.0).astype(np.float32))

    return replace(group, samples=tuple(fill(sample) for sample in group.samples))


def _with_view(run: Run, groups: Sequence[Group], name: str, view: ViewSettings) -> list[Group]:
    """Score the sampled tokens under other weights and another prompt."""
    prompted = [_prompted(run, group, view) for group in groups]
    scorer = run.engine.score if view.weights == "policy" else run.frozen[name].score
    outputs = iter(score_samples(run, [s for rows in prompted for s in rows], frozenset(), scorer))

    def fill(sample: Sample, seen: Sample) -> Sample:
        aligned = in_place_of(sample, seen, next(outputs).logprobs[0].numpy())
        return replace(sample, views={**sample.views, name: ViewScores(logprobs=aligned)})

    return [
        replace(
            group,
            samples=tuple(fill(s, seen) for s, seen in zip(group.samples, rows, strict=True)),
        )
        for group, rows in zip(groups, prompted, strict=True)
    ]


def _prompted(run: Run, group: Group, view: ViewSettings) -> list[Sample]:
    """The group's samples under the view's prompt; later ids are copied verbatim."""
    if not view.hints:
        return list(group.samples)
    out: list[Sample] = []
    for sample in group.samples:
        messages = run.workshop.hinted_messages(
            group.task, view.hints, group.trajectories, group.scores, sample.sibling
        )
        out.append(with_prompt(sample, run.policy.chat.prompt_ids(messages)))
    return out
