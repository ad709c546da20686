"""Credits that read views: the reward gives the direction, a log-ratio the magnitude.

The student's side of every log-ratio is what it gave the token when judging (for episodes of this
step: when sampling), so all weights are constants of the step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from selfdistill_cli.core.needs import DivergenceNeed, Need, Needs
from selfdistill_cli.core.protocols import Metrics
from selfdistill_cli.core.types import Group, Sample
from selfdistill_cli.losses import token_weights
from selfdistill_cli.losses.divergence import k1
from selfdistill_cli.losses.segments import divergence_segments, segment_weights
from selfdistill_cli.losses.steps import step_ids
from selfdistill_cli.losses.value_weights import saturation_fraction
from selfdistill_cli.methods.arrays import (
    all_samples,
    masks,
    pad,
    per_trajectory,
    present,
    student_logprobs,
    student_row,
)
from selfdistill_cli.methods.coefficients import coefficient
from selfdistill_cli.methods.credit_settings import (
    DivergenceSegmentsSettings,
    StepLogRatioSettings,
    TokenLogRatioSettings,
    TwoViewSettings,
)
from selfdistill_cli.methods.reweighting import advantages_of, reweighted, unchanged
from selfdistill_cli.methods.stateless import Stateless

Settings = (
    TokenLogRatioSettings | StepLogRatioSettings | TwoViewSettings | DivergenceSegmentsSettings
)


class _ViewCredit(Stateless):
    """Weights from views; a subclass says which views and which weights."""

    needs: Needs = frozenset()
    views: tuple[str, ...] = ()

    def __init__(self, settings: Settings):
        self.settings = settings
        self.ramp = coefficient(settings.ramp)

    def reweight(self, groups: Sequence[Group], step: int) -> tuple[list[Group], Metrics]:
        """Change `advantages` by weights from the views; also return credit metrics."""
        samples, ramp = all_samples(groups), self.ramp(step)
        if not samples:
            return unchanged(groups, ramp)
        weights, saturation, more = self._weights(groups, samples)
        changed, metrics = reweighted(groups, weights, ramp, saturation)
        return changed, {**metrics, **more}

    def _weights(
        self, groups: Sequence[Group], samples: Sequence[Sample]
    ) -> tuple[torch.Tensor, float, dict[str, float]]:
        """Weights [B,T], share of saturated ones, further metrics."""
        raise NotImplementedError

    def after_step(self, groups: Sequence[Group], step: int) -> Metrics:
        """Nothing to learn."""
        return {}


class TokenLogRatio(_ViewCredit):
    """RLSD: w = clip(exp(sign(A) (log view - log student))) (arXiv 2604.03128)."""

    settings: TokenLogRatioSettings

    def __init__(self, settings: TokenLogRatioSettings):
        super().__init__(settings)
        self.views = (settings.view,)

    def _weights(
        self, groups: Sequence[Group], samples: Sequence[Sample]
    ) -> tuple[torch.Tensor, float, dict[str, float]]:
        eps = self.settings.epsilon
        gap = _log_ratio(samples, self.settings.view)
        weights, saturation = _clipped(gap, samples, eps)
        return weights, saturation, {}


class TwoView(_ViewCredit):
    """BCSD: the mixed log-ratio of an augmented and a pruned view (arXiv 2608.09555)."""

    settings: TwoViewSettings

    def __init__(self, settings: TwoViewSettings):
        super().__init__(settings)
        self.views = (settings.augmented, settings.pruned)

    def _weights(
        self, groups: Sequence[Group], samples: Sequence[Sample]
    ) -> tuple[torch.Tensor, float, dict[str, float]]:
        s, mask = self.settings, masks(samples)
        plain = student_logprobs(samples)
        augmented, pruned = _view(samples, s.augmented), _view(samples, s.pruned)
        mixed = token_weights.two_view_delta(plain, augmented, pruned, mask, s.alpha)
        weights, saturation = _clipped(mixed.delta, samples, s.epsilon)
        count = mask.sum().clamp(min=1)
        more = {
            "credit/augmented_gap": float(mixed.augmented.sum() / count),
            "credit/pruned_gap": float(mixed.pruned.sum() / count),
        }
        return weights, saturation, more


class StepLogRatio(_ViewCredit):
    """SSPO: w = min(exp(sign(A) summed log-ratio of the step), 1 + epsilon) where it failed."""

    settings: StepLogRatioSettings

    def __init__(self, settings: StepLogRatioSettings):
        super().__init__(settings)
        self.views = (settings.view,)
        self.needs = step_needs(settings.step_unit)

    def _weights(
        self, groups: Sequence[Group], samples: Sequence[Sample]
    ) -> tuple[torch.Tensor, float, dict[str, float]]:
        s, mask = self.settings, masks(samples)
        steps = steps_of(samples, s.step_unit, s.segment_quantile)
        num_steps = int(steps.max()) + 1
        plain = student_logprobs(samples)
        teacher = pad(
            [x.views[s.view].logprobs if s.view in x.views else student_row(x) for x in samples]
        )
        delta = token_weights.step_log_ratio(
            teacher, plain, mask, steps, num_steps, s.step_logratio
        )
        weights, saturation = token_weights.step_weights(
            delta,
            _row_advantages(samples),
            per_trajectory(groups, lambda score: score.success).float(),
            mask,
            steps,
            success_threshold=s.success_threshold,
            eps=s.epsilon,
            lower=s.lower,
        )
        per_row = (steps.max(dim=1).values + 1).float()
        return weights, saturation, {"credit/steps_per_sample": float(per_row.mean())}

    def scores_view(self, success: float, worthless: bool) -> bool:
        """Whether the view is asked: solved ones have weight 1, and worthless ones no advantage."""
        failed = success < self.settings.success_threshold
        return self.settings.scored == "all" or (failed and not worthless)


class DivergenceSegments(_ViewCredit):
    """GEAR, paper form: a reconstruction of arXiv 2605.11853, not the authors' code."""

    settings: DivergenceSegmentsSettings

    def __init__(self, settings: DivergenceSegmentsSettings):
        super().__init__(settings)
        self.views = (settings.view,)
        self.full = DivergenceNeed(
            view=settings.view, direction="reverse", alpha=1.0,
            support="full", topk=0, temperature=1.0,
        )  # fmt: skip
        more = {self.full} if settings.divergence == "full" else set[Need]()
        self.needs = frozenset({"entropy", *more})

    def _weights(
        self, groups: Sequence[Group], samples: Sequence[Sample]
    ) -> tuple[torch.Tensor, float, dict[str, float]]:
        s, mask, advantages = self.settings, masks(samples), advantages_of(samples)
        segments = divergence_segments(
            self._divergence(samples),
            pad([present(x.entropy) for x in samples]),
            pad([x.turn_index for x in samples]),
            mask,
            s.anchor_quantile,
            s.entropy_quantile,
            s.max_length,
        )
        raw, weights = (
            segment_weights(
                segments.segment_divergence, advantages, mask,
                temperature=s.temperature, eps=eps, normalize=normalize,
            )
            for eps, normalize in ((None, False), (s.epsilon, s.normalize))
        )  # fmt: skip
        saturation = saturation_fraction(raw, 1.0 - s.epsilon, 1.0 + s.epsilon, mask)
        inside = (segments.segment_id >= 0) & mask
        count = float(mask.sum())
        more = {
            "credit/anchor_fraction": float((segments.anchors & mask).sum()) / count,
            "credit/segment_fraction": float(inside.sum()) / count,
        }
        return weights, saturation, more

    def _divergence(self, samples: Sequence[Sample]) -> torch.Tensor:
        if self.settings.divergence == "sampled":
            return -_log_ratio(samples, self.settings.view)
        return pad([x.views[self.settings.view].divergences[self.full] for x in samples])


def step_needs(unit: str) -> Needs:
    """What must be known of the sampled tokens to cut them into steps."""
    words: dict[str, Need] = {"segment": "entropy", "line": "line_starts"}
    return frozenset({words[unit]} if unit in words else set[Need]())


def steps_of(samples: Sequence[Sample], unit: str, segment_quantile: float) -> torch.Tensor:
    """Step of each active token [B,T], -1 elsewhere."""
    entropy = pad([present(x.entropy) for x in samples]) if unit == "segment" else None
    lines = pad([present(x.line_starts) for x in samples]) if unit == "line" else None
    turns = pad([x.turn_index for x in samples])
    return step_ids(masks(samples), turns, entropy, unit, segment_quantile, lines)  # pyright: ignore


def _view(samples: Sequence[Sample], name: str) -> torch.Tensor:
    return pad([sample.views[name].logprobs for sample in samples])


def _log_ratio(samples: Sequence[Sample], view: str) -> torch.Tensor:
    """log view - log student [B,T], 0 where inactive."""
    plain = student_logprobs(samples)
    return k1(_view(samples, view), plain, masks(samples))


def _clipped(
    gap: torch.Tensor, samples: Sequence[Sample], epsilon: float
) -> tuple[torch.Tensor, float]:
    """Return weights clip(exp(sign(A) gap)) and the share of them that the clip moved."""
    mask, advantages = masks(samples), advantages_of(samples)
    raw = token_weights.signed_weights(gap, advantages, mask, None)
    weights = token_weights.signed_weights(gap, advantages, mask, epsilon)
    return weights, saturation_fraction(raw, 1.0 - epsilon, 1.0 + epsilon, mask)


def _row_advantages(samples: Sequence[Sample]) -> torch.Tensor:
    """One advantage per row [B]: the sum over its tokens has the trajectory's sign."""
    return advantages_of(samples).sum(-1)
