"""Views: the sampled tokens scored under other weights and another prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from selfdistill_cli.batching.samples import in_place_of, with_prompt
from selfdistill_cli.core.errors import ConfigError, RunError
from selfdistill_cli.core.needs import DivergenceNeed, LayerNeed, Need, Needs, TopNeed
from selfdistill_cli.core.types import (
    FloatArray,
    Group,
    PolicyOutput,
    Sample,
    TopScores,
    ViewScores,
)
from selfdistill_cli.losses.distribution import FullTeacher, divergence, top_ids, top_teacher
from selfdistill_cli.methods.advantage import is_flat
from selfdistill_cli.methods.arrays import per_trajectory
from selfdistill_cli.training.scorers import Scorer, Unembedding, scored_rows
from selfdistill_cli.training.served import ServedScorer, asked, check_needs
from selfdistill_cli.training.signals import with_signal

if TYPE_CHECKING:
    from selfdistill_cli.training.run import Run


def with_view(
    run: Run, groups: Sequence[Group], name: str, step: int
) -> tuple[list[Group], Unembedding | None]:
    """Fill `Sample.views[name]`; also the view's unembedding if its hidden states are kept.

    A sample for which no part reads the view is left without it: its scoring pass is saved.
    """
    if getattr(run.method.views[name], "is_signal", False):
        return with_signal(run, groups, name), None
    scorer, needs = run.scorers[name], ViewNeeds(run, name)
    samples = [sample for group in groups for sample in group.samples]
    prompted = [seen for group in groups for seen in _prompted(run, group, name, step)]
    read = [(place, seen) for place, seen in enumerate(prompted) if seen is not None]
    costs = [float(len(seen.sample.token_ids)) for _, seen in read]
    if isinstance(scorer, ServedScorer):
        check_needs(needs, name)
        found = run.world.shared(
            read, lambda mine: asked(scorer, needs, samples, mine), costs=costs
        )
        return _with_scores(groups, samples, read, name, found), None
    # Two names for one storage: while the view's weights stand in the module it is still the
    # student's.
    weight, bias = run.policy.unembedding()
    student = weight.detach(), None if bias is None else bias.detach()
    with scorer.in_place():
        _check_layers(run, needs, scorer)
        unembedding = scorer.unembedding() if needs.reads_hidden else None

        def score(mine: list[tuple[int, Seen]]) -> list[ViewScores]:
            found: dict[int, ViewScores] = {}
            own = [seen.sample for _, seen in mine]
            filler = read[0][1].sample if scorer.together else None
            for index, output in scored_rows(run, own, needs.of_pass, scorer.score, filler):
                place, seen = mine[index]
                found[index] = _scores(needs, samples[place], seen, output, student, unembedding)
            return [found[i] for i in range(len(mine))]

        together = scorer.together and bool(read)
        scores = run.world.shared(read, score, costs=costs, together=together)
    out = _with_scores(groups, samples, read, name, scores)
    return out, unembedding if needs.keeps_hidden else None


def _with_scores(
    groups: Sequence[Group],
    samples: list[Sample],
    read: Sequence[tuple[int, Seen]],
    name: str,
    scores: Sequence[ViewScores],
) -> list[Group]:
    """The groups with a view's scores at the samples that were read."""
    for (place, _), found in zip(read, scores, strict=True):
        sample = samples[place]
        samples[place] = replace(sample, views={**sample.views, name: found})
    complete = iter(samples)
    return [replace(g, samples=tuple(next(complete) for _ in g.samples)) for g in groups]


class ViewNeeds:
    """What the method's parts ask of one view."""

    def __init__(self, run: Run, name: str):
        judging = _of_view(run.method.judge_needs, name)
        learning = _of_view(run.method.forward_needs, name)
        self.divergences = [need for need in judging if isinstance(need, DivergenceNeed)]
        self.tops = {n.top for n in learning if isinstance(n, DivergenceNeed) and n.top is not None}
        self.layers = [need for need in learning if isinstance(need, LayerNeed)]
        self.keeps_hidden = any(
            isinstance(need, DivergenceNeed) and need.top is None for need in learning
        )

    @property
    def reads_hidden(self) -> bool:
        """Whether the scoring pass must give hidden states."""
        return self.keeps_hidden or bool(self.divergences) or bool(self.tops)

    @property
    def of_pass(self) -> Needs:
        """What the scoring pass must give."""
        words: set[Need] = {"hidden"} if self.reads_hidden else set()
        return frozenset({*words, *self.layers})


def _of_view(needs: Needs, name: str) -> list[DivergenceNeed | LayerNeed]:
    return [need for need in needs if not isinstance(need, str) and need.view == name]


def _check_layers(run: Run, needs: ViewNeeds, scorer: Scorer) -> None:
    """Raise ConfigError unless the student has the layers that are matched, as wide as theirs."""
    known = int(run.policy.config.num_hidden_layers)
    own, theirs = run.policy.hidden_size, scorer.unembedding()[0].shape[1] if needs.layers else 0
    for need in needs.layers:
        where = next(f"method.terms.{n}" for n, t in run.method.terms.items() if need in t.needs)
        wrong = [i for i in need.layers if not -known - 1 <= i <= known]
        if wrong:
            raise ConfigError(
                f"{where}.layers: got {wrong[0]}, expected indices from {-known - 1} to {known}: 0 "
                "is the embeddings and -1 the last layer of the policy"
            )
        if own != theirs:
            raise ConfigError(
                f"{where}.view: the hidden states of view '{need.view}' are {theirs} wide and the "
                f"student's {own}; use a view of the student's size, or {where}.coefficient=0"
            )


class Seen:
    """A sample under the view's prompt."""

    def __init__(self, sample: Sample, informed: bool = True, privileged: str = ""):
        self.sample = sample
        self.informed = informed
        self.privileged = privileged


def _prompted(run: Run, group: Group, name: str, step: int) -> list[Seen | None]:
    """The group's samples under the view's prompt; later ids are copied verbatim.

    None where no part reads the view. A rejected trajectory is no one's sibling: what it did may
    be unknown, so no hint reads it.
    """
    hints = run.method.views[name].hints
    successes = per_trajectory([group], lambda score: score.success).tolist()
    flat = is_flat(group)
    matters = [run.method.reads_view(name, success, flat) for success in successes]
    if not hints:
        pairs = zip(group.samples, matters, strict=True)
        return [Seen(sample) if read else None for sample, read in pairs]
    scored = zip(group.trajectories, group.scores, strict=True)
    accepted = [(t, score) for t, score in scored if score.total is not None]
    siblings, scores = [t for t, _ in accepted], [score for _, score in accepted]
    places = {t.sibling: i for i, t in enumerate(siblings)}
    out: list[Seen | None] = []
    first: set[int] = set()
    for sample, read in zip(group.samples, matters, strict=True):
        if not read:
            out.append(None)
            continue
        if sample.sibling in first:  # a later part of a cut trajectory: its prompt holds its turns
            out.append(Seen(sample, informed=False))
            continue
        first.add(sample.sibling)
        index = places.get(sample.sibling)
        prompt = run.workshop.hinted_prompt(
            group.task, hints, siblings, scores, index, salt=step
        )
        _check_boundary(sample, prompt.ids, name, run.policy.chat.boundary_ids)
        seen = with_prompt(sample, prompt.ids)
        _check_length(run, seen, name, group.task.id)
        out.append(Seen(seen, informed=bool(prompt.hints), privileged=prompt.privileged))
    return out


def _check_length(run: Run, seen: Sample, name: str, task_id: str) -> None:
    """The model must have a position for every token of the hinted sequence."""
    limit, length = run.policy.context_length, len(seen.token_ids)
    if limit is not None and length > limit:
        raise ConfigError(
            f"view {name}: with its hints task {task_id} has {length} tokens, more than the "
            f"model's {limit} positions; use a hint with less text, or shorten it in env.data"
        )


def _check_boundary(
    sample: Sample, prompt_ids: Sequence[int], name: str, boundary: Sequence[int]
) -> None:
    """Both prompts must end with what opens an assistant's turn, or tokens do not line up."""
    own = sample.token_ids[: sample.num_prompt_tokens].tolist()
    ends = [ids[len(ids) - len(boundary) :] for ids in (list(prompt_ids), own)]
    if ends[0] != list(boundary) or ends[1] != list(boundary):
        raise RunError(
            f"view {name}: its prompt ends with the ids {ends[0]} and the student's with "
            f"{ends[1]}; expected both to end with {list(boundary)}, which opens an answer. Use a "
            "chat template whose generation prompt does not depend on the messages."
        )


def _scores(
    needs: ViewNeeds,
    sample: Sample,
    seen: Seen,
    output: PolicyOutput,
    student: Unembedding,
    unembedding: Unembedding | None,
) -> ViewScores:
    """What a pass over the prompted sample says of the sample's own positions."""
    layers = {
        need: in_place_of(sample, seen.sample, output.layers[need][0].float().numpy())
        for need in needs.layers
    }
    scores = ViewScores(
        logprobs=in_place_of(sample, seen.sample, output.logprobs[0].numpy()),
        informed=seen.informed,
        privileged=seen.privileged,
        layers=layers,
    )
    if unembedding is None or output.hidden is None:
        return scores
    hidden = in_place_of(sample, seen.sample, output.hidden[0].float().numpy())
    own = _Distributions(sample, student, hidden, unembedding)
    return replace(
        scores,
        hidden=hidden if needs.keeps_hidden else None,
        tops={need: own.top(need) for need in needs.tops},
        divergences={need: own.divergence(need) for need in needs.divergences},
    )


class _Distributions:
    """One sample's distributions under a view and under the student."""

    def __init__(
        self,
        sample: Sample,
        student: Unembedding,
        hidden: FloatArray,
        unembedding: Unembedding,
    ):
        self.sample = sample
        self.student = student
        self.unembedding = unembedding
        self.hidden = self._active(hidden, unembedding[0])

    def _active(self, hidden: FloatArray, like: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(hidden[self.sample.action_mask]).to(like)

    def _student(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        assert self.sample.hidden is not None, "the judge phase keeps the student's states"
        weight, bias = self.student
        return self._active(self.sample.hidden, weight), weight, bias

    def top(self, need: TopNeed) -> TopScores:
        """The view's probabilities of its own or the student's likeliest tokens."""
        choice: dict[str, Any] = {"k": need.topk}
        if need.support == "student_topk":
            choice = {"ids_NK": top_ids(*self._student(), need.topk)}
        found = top_teacher(self.hidden, *self.unembedding, temperature=need.temperature, **choice)
        return TopScores(
            ids=self._spread(found.ids_NK, np.int64),
            logprobs=self._spread(found.logprobs_NK, np.float32),
            tail=self._spread(found.tail_N, np.float32),
        )

    def divergence(self, need: DivergenceNeed) -> FloatArray:
        """Divergence of the view from the student that sampled, per token."""
        with torch.no_grad():
            per_token = divergence(
                *self._student(),
                FullTeacher(
                    hidden_NH=self.hidden,
                    unembedding_VH=self.unembedding[0],
                    bias_V=self.unembedding[1],
                ),
                kind=need.direction,
                alpha=need.alpha,
                temperature=need.temperature,
            )
        return self._spread(per_token, np.float32)

    def _spread(self, values: torch.Tensor, dtype: Any) -> Any:
        """Put [N,...] at the active positions of [T,...]; zeros elsewhere."""
        out = np.zeros((len(self.sample.token_ids), *values.shape[1:]), dtype=dtype)
        out[self.sample.action_mask] = values.cpu().numpy().astype(dtype)
        return out
