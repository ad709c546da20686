"""The recipe: six parts, what they need, and how they are joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from selfdistill_cli.core.needs import Need, Needs
from selfdistill_cli.core.parts import build_part, expect_complete
from selfdistill_cli.core.protocols import (
    Advantage,
    Coefficient,
    Credit,
    Metrics,
    Readings,
    SlowCopy,
    Source,
    Sums,
    Sync,
    Term,
)
from selfdistill_cli.core.settings import Settings, ViewSettings
from selfdistill_cli.core.types import Batch, Group, PolicyOutput, Sample
from selfdistill_cli.methods.advantage import is_flat
from selfdistill_cli.methods.arrays import all_samples, map_rows
from selfdistill_cli.methods.diagnostics import TEACHER, distill_ratio, teacher_metrics
from selfdistill_cli.methods.pairs import with_pairs
from selfdistill_cli.methods.settings import MethodSettings

SumOverRanks = Callable[[list[float]], list[float]]


class Method:
    """A method is its parts. Nothing here knows which method it is."""

    def __init__(self, settings: MethodSettings, teacher: ViewSettings | None):
        self.settings = settings
        self.source: Source = build_part("method.source", settings.source, Source)
        self.advantage: Advantage = build_part("method.advantage", settings.advantage, Advantage)
        self.credit: Credit = build_part("method.credit", settings.credit, Credit)
        self.sync: Sync = build_part("method.sync", settings.sync, Sync)
        terms = {n: _build_term(n, term) for n, term in settings.terms.items()}
        self.terms: dict[str, Any] = {n: t for n, t in terms.items() if getattr(t, "active", True)}
        self.views = self._needed_views(teacher)
        self.synced_before = False  # the copy was replaced since the teacher was last scored

    def _needed_views(self, teacher: ViewSettings | None) -> dict[str, ViewSettings]:
        """The teacher, if there is one, and every view that an active part reads."""
        known = dict(self.settings.views) | ({TEACHER: teacher} if teacher else {})
        parts: list[Any] = [self.credit, *self.terms.values()]
        wanted = {name for part in parts for name in getattr(part, "views", ())} | {TEACHER}
        return {name: view for name, view in known.items() if name in wanted}

    def reads_view(self, name: str, success: float, flat: bool) -> bool:
        """Whether the view can change anything for a trajectory of this success.

        A credit may say by `scores_view(success, worthless)` that it cannot; worthless is a
        trajectory of a flat group whose advantage is 0, whatever its weights are. A term reads its
        views everywhere, and a view that only the diagnostics read is scored everywhere.
        """
        by_credit = name in getattr(self.credit, "views", ())
        if name in self.term_views or not by_credit:
            return True
        scores_view = getattr(self.credit, "scores_view", None)
        worthless = flat and getattr(self.advantage, "zero_if_flat", False)
        return scores_view is None or scores_view(success, worthless)

    @property
    def term_views(self) -> list[str]:
        """Names of the views that terms read while learning."""
        return sorted({n for term in self.terms.values() for n in getattr(term, "views", ())})

    @property
    def needs_critic(self) -> bool:
        """Whether the policy gets a value head."""
        return any(getattr(term, "needs_critic", False) for term in self.settings.terms.values())

    @property
    def judge_needs(self) -> Needs:
        """What must be known of the sampled tokens before they are judged."""
        own: list[Needs] = [getattr(t, "judge_needs", frozenset()) for t in self.terms.values()]
        return self.advantage.needs | self.credit.needs | frozenset[Need]().union(*own)

    @property
    def forward_needs(self) -> Needs:
        """What the student's forward pass must give besides log-probs."""
        return frozenset[Need]().union(*(term.needs for term in self.terms.values()))

    @property
    def compares_pairs(self) -> bool:
        """Whether a term compares siblings, which then must not be separated."""
        return any(getattr(self.settings.terms[name], "pairs", False) for name in self.terms)

    def judge(self, groups: Sequence[Group], step: int) -> tuple[list[Group], Metrics]:
        """What is each token worth? Fill advantages, spread them, drop what is to be dropped."""
        metrics = teacher_metrics(groups)
        judged, credit_metrics = self.credit.reweight(self.advantage.assign(groups), step)
        judged = self.advantage.after_credit(judged)
        if self.settings.drop_flat_groups:
            judged = [replace(g, samples=()) if is_flat(g) else g for g in judged]
        judged = self._weighted(judged)
        if self.compares_pairs:
            judged = with_pairs(judged)
        return judged, {**metrics, **credit_metrics}

    def learned_from(self, groups: Sequence[Group]) -> list[Sample]:
        """The samples that the updates go through: all of them, or those in a pair."""
        samples = all_samples(groups)
        return [s for s in samples if s.pair >= 0] if self.compares_pairs else samples

    def _weighted(self, groups: list[Group]) -> list[Group]:
        """Fill the weights that terms fix when judging."""
        for name, term in self.terms.items():
            rows = term.weights(groups)
            if rows is not None:
                groups = map_rows(
                    groups,
                    lambda x, row, name=name, rows=rows: replace(
                        x, weights={**x.weights, name: rows[row]}
                    ),
                )
        return groups

    def counts(self, batches: Sequence[Batch], over_ranks: SumOverRanks = list) -> dict[str, float]:
        """Each term's denominator over all micro-batches of one update.

        `over_ranks` adds the numbers of this process to those of the others.
        """
        totals = over_ranks(
            [sum(term.count(batch) for batch in batches) for term in self.terms.values()]
        )
        named = zip(self.terms, totals, strict=True)
        return {name: total if total > 0 else 1.0 for name, total in named}

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

    def loss_metrics(self, means: Mapping[str, float], step: int) -> dict[str, float]:
        """The total loss, the coefficients that move, and distillation against policy gradient."""
        values = {name: term.coefficient(step) for name, term in self.terms.items()}
        total = sum(value * means.get(f"loss/{name}", 0.0) for name, value in values.items())
        moving = {
            f"loss/coefficient_{name}": value
            for name, value in values.items()
            if not isinstance(self.settings.terms[name].coefficient, int | float)  # pyright: ignore
        }
        return {"loss/total": total, **moving, **distill_ratio(self.terms, values, means)}

    def after_update(self, copy: SlowCopy | None) -> None:
        """One optimizer update was made."""
        if copy is not None:
            self.sync.after_update(copy)

    def after_step(
        self, groups: Sequence[Group], copy: SlowCopy | None, readings: Readings
    ) -> Metrics:
        """Fit heads, let the slow copy follow, move controllers."""
        metrics = {
            **self.credit.after_step(groups, readings.step),
            **self.sync.after_step(copy, readings),
        }
        for name, moving in self._coefficients().items():
            moving.observe(readings.losses.get(name), readings, self.synced_before)
        # This step's divergence was measured before the copy: the next one is the first after it.
        self.synced_before, self.sync.synced = self.sync.synced, False
        return metrics

    def _coefficients(self) -> dict[str, Coefficient]:
        """Everything that may follow a reading, by the name of its term."""
        found: dict[str, Coefficient] = {n: term.coefficient for n, term in self.terms.items()}
        ramp = getattr(self.credit, "ramp", None)
        return found if ramp is None else {**found, "credit.ramp": ramp}

    def state_dict(self) -> dict[str, Any]:
        """State of every part, by name."""
        parts = {name: part.state_dict() for name, part in self._parts().items()}
        return {**parts, "synced_before": self.synced_before}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.synced_before = bool(state["synced_before"])

    def _parts(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "advantage": self.advantage,
            "credit": self.credit,
            "sync": self.sync,
            **{f"coefficient {name}": moving for name, moving in self._coefficients().items()},
        }


def _build_term(name: str, settings: Settings) -> Any:
    key = f"method.terms.{name}"
    term = build_part(key, settings, Term, name)
    expect_complete(f"{key}.coefficient", term.coefficient, Coefficient)
    return term
