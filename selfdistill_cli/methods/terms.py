"""Terms: what is minimised. Each returns a sum; its own global count divides it."""

from __future__ import annotations

from typing import Any

import torch

from selfdistill_cli.core.protocols import Sums
from selfdistill_cli.core.types import Batch, PolicyOutput
from selfdistill_cli.losses.divergence import k2, k3
from selfdistill_cli.losses.policy_gradient import (
    LOSS_TYPES,
    reduce_total,
    reduction_count,
    surrogate,
)
from selfdistill_cli.losses.value import value_loss
from selfdistill_cli.methods.coefficients import coefficient, is_zero
from selfdistill_cli.methods.settings import (
    CrossEntropySettings,
    EntropySettings,
    PolicyGradientSettings,
    ReferenceKlSettings,
    ValueLossSettings,
)


class _TokenMean:
    """A term that is a mean over active tokens."""

    needs: frozenset[str] = frozenset()
    needs_view: str | None = None

    def __init__(self, settings: Any):
        self.settings = settings
        self.coefficient = coefficient(settings.coefficient)
        self.active = not is_zero(settings.coefficient)

    def count(self, batch: Batch) -> float:
        """Active tokens."""
        return float(batch.action_mask.sum())


class PolicyGradient(_TokenMean):
    """The surrogate of `losses.policy_gradient` with the reduction of its loss type."""

    settings: PolicyGradientSettings

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
        }
        return reduce_total(out.per_token, mask, reduction, s.max_completion_length), sums


class ValueLoss(_TokenMean):
    """Clipped regression of the critic to the returns."""

    settings: ValueLossSettings

    def __init__(self, settings: ValueLossSettings):
        super().__init__(settings)
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


class EntropyBonus(_TokenMean):
    """Minus the entropy, so that a positive coefficient raises it."""

    settings: EntropySettings
    needs = frozenset({"entropy"})

    def total(self, output: PolicyOutput, batch: Batch) -> tuple[torch.Tensor, Sums]:
        """Summed negative entropy over active tokens."""
        assert output.entropy is not None, "the engine computes what a term needs"
        mask = batch.action_mask
        return -torch.where(mask, output.entropy, torch.zeros_like(output.entropy)).sum(), {}


class ReferenceKl(_TokenMean):
    """Sampled KL(student || view) by k2 or k3 (Schulman, joschu.net/blog/kl-approx)."""

    settings: ReferenceKlSettings

    def __init__(self, settings: ReferenceKlSettings):
        super().__init__(settings)
        self.needs_view = settings.view

    def total(self, output: PolicyOutput, batch: Batch) -> tuple[torch.Tensor, Sums]:
        """Summed estimate over active tokens."""
        estimator = {"k2": k2, "k3": k3}[self.settings.estimator]
        reference = batch.view_logprobs[self.settings.view]
        loss = estimator(output.logprobs, reference, batch.action_mask).sum()
        return loss, {}


class CrossEntropy(_TokenMean):
    """Negative log-likelihood of the demonstrated tokens."""

    settings: CrossEntropySettings

    def total(self, output: PolicyOutput, batch: Batch) -> tuple[torch.Tensor, Sums]:
        """Summed negative log-probability over active tokens."""
        return -output.logprobs.sum(), {}
