"""Terms: what is minimised. Each returns a sum; its own global count divides it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from selfdistill_cli.core.needs import Needs
from selfdistill_cli.core.protocols import Sums
from selfdistill_cli.core.types import Batch, FloatArray, Group, PolicyOutput
from selfdistill_cli.losses.cleaning import keep_active
from selfdistill_cli.losses.divergence import k2, k3
from selfdistill_cli.losses.policy_gradient import (
    LOSS_TYPES,
    reduce_total,
    reduction_count,
    surrogate,
)
from selfdistill_cli.losses.token_distill import importance_weight
from selfdistill_cli.losses.value import value_loss
from selfdistill_cli.methods.arrays import all_samples, masks, pad, present, unpad
from selfdistill_cli.methods.coefficients import coefficient, is_zero
from selfdistill_cli.methods.term_settings import (
    CrossEntropySettings,
    EntropySettings,
    PolicyGradientSettings,
    ReferenceKlSettings,
    ValueLossSettings,
)


class TokenMean:
    """A term that is a mean over active tokens."""

    needs: Needs = frozenset()
    judge_needs: Needs = frozenset()
    """What must be known of the sampled tokens when `weights` is called."""
    views: tuple[str, ...] = ()
    """Views that the term reads."""

    def __init__(self, settings: Any, name: str):
        self.settings = settings
        self.name = name
        self.coefficient = coefficient(settings.coefficient)
        self.active = not is_zero(settings.coefficient)

    def weights(self, groups: Sequence[Group]) -> list[FloatArray] | None:
        """Every token counts as 1."""
        return None

    def count(self, batch: Batch) -> float:
        """Active tokens."""
        return float(batch.action_mask.sum())


class PolicyGradient(TokenMean):
    """The surrogate of `losses.policy_gradient` with the reduction of its loss type."""

    settings: PolicyGradientSettings

    def weights(self, groups: Sequence[Group]) -> list[FloatArray] | None:
        """Truncated importance weights of the trainer against the engine that sampled.

        Both sides have the weights before the update; the ratio of the surrogate goes on from
        there. Yao et al. 2025, fengyao.notion.site/off-policy-rl.
        """
        clip, samples = self.settings.sampler_clip, all_samples(groups)
        if clip is None or not samples:
            return None if clip is None else []
        trainer = pad([present(sample.old_logprobs) for sample in samples])
        sampler = pad([sample.sampled_logprobs for sample in samples])
        return unpad(importance_weight(trainer, sampler, masks(samples), clip), samples)

    def count(self, batch: Batch) -> float:
        """Tokens, rows or a constant, by the loss type."""
        s = self.settings
        return reduction_count(
            batch.action_mask, LOSS_TYPES[s.loss_type][1], s.max_completion_length
        )

    def total(self, output: PolicyOutput, batch: Batch) -> tuple[torch.Tensor, Sums]:
        """Summed surrogate loss; clip fractions and the sampled KL to the old policy."""
        s, mask = self.settings, batch.action_mask
        kind, reduction = LOSS_TYPES[s.loss_type]
        out = surrogate(
            output.logprobs, batch.old_logprobs, batch.advantages, mask,
            kind=kind, eps_low=s.clip_low, eps_high=s.clip_high,
            dual_clip=s.dual_clip, ratio_max=s.ratio_max,
        )  # fmt: skip
        sums = {
            "policy/clip_fraction_high": (out.clip_high, out.active),
            "policy/clip_fraction_low": (out.clip_low, out.active),
            "policy/clip_fraction": (out.clip_high + out.clip_low, out.active),
            "policy/approx_kl": (out.kl_k3, out.active),
            "policy/loss_magnitude": (float(out.per_token.detach().abs().sum()), out.active),
        }
        per_token = out.per_token
        if s.sampler_clip is not None:
            weight = keep_active(batch.weights[self.name], mask)
            per_token = per_token * weight
            sums["policy/sampler_weight"] = (float(weight.sum()), out.active)
            clipped = float((weight >= s.sampler_clip)[mask].sum())
            sums["policy/sampler_clipped"] = (clipped, out.active)
        return reduce_total(per_token, mask, reduction, s.max_completion_length), sums


class ValueLoss(TokenMean):
    """Clipped regression of the critic to the returns."""

    settings: ValueLossSettings

    def __init__(self, settings: ValueLossSettings, name: str):
        super().__init__(settings, name)
        self.needs = frozenset({"values_detached" if settings.detach else "values"})

    def total(self, output: PolicyOutput, batch: Batch) -> tuple[torch.Tensor, Sums]:
        """Summed loss over active tokens; squared error for explained variance."""
        assert output.values is not None, "the engine computes what a term needs"
        mask = batch.action_mask
        loss = value_loss(
            output.values, batch.old_values, batch.returns, mask, self.settings.clip
        )
        error = (output.values.detach() - batch.returns)[mask]
        return loss.sum(), {"policy/value_mse": (float(error.square().sum()), len(error))}


class EntropyBonus(TokenMean):
    """Minus the entropy, so that a positive coefficient raises it."""

    settings: EntropySettings
    needs = frozenset({"entropy"})

    def total(self, output: PolicyOutput, batch: Batch) -> tuple[torch.Tensor, Sums]:
        """Summed negative entropy over active tokens."""
        assert output.entropy is not None, "the engine computes what a term needs"
        mask = batch.action_mask
        return -torch.where(mask, output.entropy, torch.zeros_like(output.entropy)).sum(), {}


class ReferenceKl(TokenMean):
    """Sampled KL(student || view) by k2 or k3 (Schulman, joschu.net/blog/kl-approx)."""

    settings: ReferenceKlSettings

    def __init__(self, settings: ReferenceKlSettings, name: str):
        super().__init__(settings, name)
        self.views = (settings.view,)

    def total(self, output: PolicyOutput, batch: Batch) -> tuple[torch.Tensor, Sums]:
        """Summed estimate over active tokens."""
        estimator = {"k2": k2, "k3": k3}[self.settings.estimator]
        reference = batch.views[self.settings.view].logprobs
        loss = estimator(output.logprobs, reference, batch.action_mask).sum()
        return loss, {}


class CrossEntropy(TokenMean):
    """Negative log-likelihood of the demonstrated tokens."""

    settings: CrossEntropySettings

    def total(self, output: PolicyOutput, batch: Batch) -> tuple[torch.Tensor, Sums]:
        """Summed negative log-probability over active tokens."""
        return -keep_active(output.logprobs, batch.action_mask).sum(), {}
