"""The recipe: six parts, what they need, and how they are joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from selfdistill_cli.core.protocols import Advantage, Credit, Metrics, Source, Sums, Sync
from selfdistill_cli.core.settings import ViewSettings
from selfdistill_cli.core.types import Batch, Group, PolicyOutput, Sample
from selfdistill_cli.losses.divergence import k3
from selfdistill_cli.methods.arrays import all_samples, masks, pad, present
from selfdistill_cli.methods.settings import MethodSettings

TEACHER = "teacher"


class Method:
    """A method is its parts. Nothing here knows which method it is."""

    def __init__(self, settings: MethodSettings, teacher: ViewSettings | None):
        self.settings = settings
        self.source: Source = settings.source.build()
        self.advantage: Advantage = settings.advantage.build()
        self.credit: Credit = settings.credit.build()
        self.sync: Sync = settings.sync.build()
        terms = {name: term.build() for name, term in settings.terms.items()}
        self.terms: dict[str, Any] = {name: term for name, term in terms.items() if term.active}
        self.views = self._needed_views(teacher)

    def _needed_views(self, teacher: ViewSettings | None) -> dict[str, ViewSettings]:
        """The teacher, if there is one, and every view that an active term reads."""
        known = dict(self.settings.views) | ({TEACHER: teacher} if teacher else {})
        wanted = {term.needs_view for term in self.terms.values() if term.needs_view}
        return {name: view for name, view in known.items() if name in wanted or name == TEACHER}

    @property
    def needs_critic(self) -> bool:
        """Whether the policy gets a value head."""
        return any(getattr(term, "needs_critic", False) for term in self.settings.terms.values())

    @property
    def judge_needs(self) -> frozenset[str]:
        """What must be known of the sampled tokens before they are judged."""
        return self.advantage.needs | self.credit.needs

    @property
    def forward_needs(self) -> frozenset[str]:
        """What the student's forward pass must give besides log-probs."""
        return frozenset[str]().union(*(term.needs for term in self.terms.values()))

    def judge(self, groups: Sequence[Group], step: int) -> tuple[list[Group], Metrics]:
        """What is each token worth? Fill advantages, spread them, drop what is to be dropped."""
        metrics = _teacher_metrics(groups)
        judged, credit_metrics = self.credit.reweight(self.advantage.assign(groups), step)
        if self.settings.drop_flat_groups:
            judged = [replace(g, samples=()) if is_flat(g) else g for g in judged]
        return judged, {**metrics, **credit_metrics}

    def counts(self, batches: Sequence[Batch]) -> dict[str, float]:
        """Each term's denominator over all micro-batches of one update."""
        return {
            name: max(1.0, sum(term.count(batch) for batch in batches))
            for name, term in self.terms.items()
        }

    def total_loss(
        self, output: PolicyOutput, batch: Batch, counts: Mapping[str, float], step: int
    ) -> tuple[torch.Tensor, Sums]:
        """Sum over terms of coefficient * total / count, and diagnostics."""
        loss = output.logprobs.sum() * 0.0
        sums: dict[str, tuple[float, float]] = {}
        for name, term in self.terms.items():
            total, diagnostics = term.total(output, batch)
            loss = loss + term.coefficient(step) * total / counts[name]
            sums.update(diagnostics)
            sums[f"loss/{name}"] = (float(total.detach()), term.count(batch))
        return loss, sums

    def after_step(self, groups: Sequence[Group], step: int) -> Metrics:
        """Fit heads, move controllers, let the slow copy follow."""
        return {**self.credit.after_step(groups, step), **self.sync.after_step(step)}

    def state_dict(self) -> dict[str, Any]:
        """State of every part, by name."""
        return {name: part.state_dict() for name, part in self._parts().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for name, part in self._parts().items():
            part.load_state_dict(state[name])

    def _parts(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "advantage": self.advantage,
            "credit": self.credit,
            "sync": self.sync,
        }


def is_flat(group: Group) -> bool:
    """Whether all accepted trajectories of a group have the same reward (demonstrations: no)."""
    totals = [score.total for score in group.scores if score.total is not None]
    return bool(group.scores) and (not totals or max(totals) == min(totals))


def _teacher_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """`teacher/kl`: reverse KL(student || teacher), sampled k3, nats per active token."""
    scored: list[Sample] = [s for s in all_samples(groups) if TEACHER in s.views]
    if not scored:
        return {}
    mask = masks(scored)
    student = pad([present(sample.old_logprobs) for sample in scored])
    teacher = pad([sample.views[TEACHER].logprobs for sample in scored])
    return {"teacher/kl": float(k3(student, teacher, mask).sum() / mask.sum().clamp(min=1))}
