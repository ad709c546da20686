"""Terms that teach: the student is moved towards a view of the same tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from selfdistill_cli.core.needs import DivergenceNeed, LayerNeed
from selfdistill_cli.core.protocols import Sums
from selfdistill_cli.core.types import Batch, FloatArray, Group, PolicyOutput, Sample
from selfdistill_cli.losses.cleaning import keep_active
from selfdistill_cli.losses.divergence import k2, k3
from selfdistill_cli.losses.steps import step_mean_weights
from selfdistill_cli.losses.token_distill import (
    gated_log_ratio,
    importance_weight,
    sampled_reverse,
)
from selfdistill_cli.methods.arrays import all_samples, per_trajectory, unpad
from selfdistill_cli.methods.term_settings import (
    DistillSettings,
    GatedLogRatioSettings,
    HiddenMatchSettings,
)
from selfdistill_cli.methods.terms import TokenMean
from selfdistill_cli.methods.view_credit import step_needs, steps_of


class Distill(TokenMean):
    """Divergence from a view, in nats, averaged over the taught tokens or steps."""

    settings: DistillSettings

    def __init__(self, settings: DistillSettings, name: str):
        super().__init__(settings, name)
        s = settings
        self.views = (s.view,)
        self.need: DivergenceNeed | None = None
        if s.support != "sampled":
            self.need = DivergenceNeed(
                view=s.view, direction=s.direction, alpha=s.alpha,
                support=s.support, topk=s.topk, temperature=s.temperature,
            )  # fmt: skip
            self.needs = frozenset({self.need})
        self.judge_needs = step_needs(s.step_unit)

    def weights(self, groups: Sequence[Group]) -> list[FloatArray]:
        """0 where nothing is taught; else 1, or 1 over the length of the token's step."""
        samples = all_samples(groups)
        if not samples:
            return []
        s = self.settings
        steps = steps_of(samples, s.step_unit, s.segment_quantile)
        by_row = unpad(step_mean_weights(steps), samples)
        success = per_trajectory(groups, lambda score: score.success).tolist()
        rows = zip(samples, by_row, success, strict=True)
        return [row * self._taught(sample, solved) for sample, row, solved in rows]

    def _taught(self, sample: Sample, success: float) -> FloatArray:
        """1 where the settings want the token to be taught [T]."""
        s = self.settings
        taught = sample.action_mask.astype(np.float32)
        wrong_rows = (s.rows == "failed" and success >= 1.0) or (s.rows == "solved" and success < 1)
        uninformed = s.only_informed and not sample.views[s.view].informed
        if wrong_rows or uninformed:
            return np.zeros_like(taught)
        taught[np.flatnonzero(sample.action_mask)[: s.skip_tokens]] = 0.0
        return taught

    def count(self, batch: Batch) -> float:
        """Taught tokens, or steps."""
        return float(self._weights(batch).sum())

    def _weights(self, batch: Batch) -> torch.Tensor:
        """Weight of each token [B,T], 0 at padding."""
        return keep_active(batch.weights[self.name], batch.action_mask)

    def total(self, output: PolicyOutput, batch: Batch) -> tuple[torch.Tensor, Sums]:
        """Weighted sum of divergences; the teacher's gap and the share of taught tokens."""
        s, weights = self.settings, self._weights(batch)
        importance = importance_weight(
            output.logprobs.detach(), batch.old_logprobs, batch.action_mask, s.importance_clip
        )
        per_token = self._per_token(output, batch, importance)
        if s.token_clip is not None:
            per_token = per_token.clamp(max=s.token_clip)
        loss = (keep_active(per_token, weights > 0) * weights).sum()
        taught = float((weights > 0).sum())
        return loss, {"teacher/taught_fraction": (taught, float(batch.action_mask.sum()))}

    def _per_token(
        self, output: PolicyOutput, batch: Batch, importance: torch.Tensor
    ) -> torch.Tensor:
        if self.need is not None:
            return importance * output.divergences[self.need]
        student, mask = output.logprobs, batch.action_mask
        teacher = batch.views[self.settings.view].logprobs
        if self.settings.estimator == "score":
            return sampled_reverse(student, teacher, mask, importance)
        estimate = {"k2": k2, "k3": k3}[self.settings.estimator]
        return importance * estimate(student, teacher, mask)


class GatedLogRatio(TokenMean):
    """SDAR: gated negative log-likelihood of the own tokens (arXiv 2605.15155)."""

    settings: GatedLogRatioSettings

    def __init__(self, settings: GatedLogRatioSettings, name: str):
        super().__init__(settings, name)
        self.views = (settings.view,)

    def total(self, output: PolicyOutput, batch: Batch) -> tuple[torch.Tensor, Sums]:
        """Sum over active tokens; the mean gate."""
        teacher = batch.views[self.settings.view].logprobs
        loss, gate = gated_log_ratio(
            output.logprobs, teacher, batch.action_mask, self.settings.gate_beta
        )
        return loss.sum(), {"teacher/gate": (float(gate.sum()), float(batch.action_mask.sum()))}


class HiddenMatch(TokenMean):
    """Distance between hidden states of student and view, meaned over layers and width."""

    settings: HiddenMatchSettings

    def __init__(self, settings: HiddenMatchSettings, name: str):
        super().__init__(settings, name)
        self.views = (settings.view,)
        self.need = LayerNeed(view=settings.view, layers=tuple(settings.layers))
        self.needs = frozenset({self.need})

    def total(self, output: PolicyOutput, batch: Batch) -> tuple[torch.Tensor, Sums]:
        """Sum over active tokens."""
        mask = batch.action_mask
        student = output.layers[self.need][mask].float()
        teacher = batch.views[self.settings.view].layers[self.need][mask].float().detach()
        if self.settings.distance == "mse":
            per_token = (student - teacher).square().mean((-1, -2))
        else:
            per_token = (1 - torch.cosine_similarity(student, teacher, dim=-1)).mean(-1)
        return per_token.sum(), {}
