"""Terms that compare two siblings: the best one against the worst one."""

from __future__ import annotations

import torch
from torch.nn import functional

from selfdistill_cli.core.protocols import Sums
from selfdistill_cli.core.types import Batch, PolicyOutput
from selfdistill_cli.losses.cleaning import keep_active
from selfdistill_cli.methods.reweighting import CREDIT
from selfdistill_cli.methods.term_settings import PairwiseSettings
from selfdistill_cli.methods.terms import TokenMean


class Pairwise(TokenMean):
    """-log sigmoid(beta * (score of the better - score of the worse)), a mean over pairs.

    dpo: the score is the sum of log-ratios to the reference (arXiv 2305.18290 eq. 7, on pairs
    that the student just sampled); rank: the mean log-probability (the specification's ranking
    loss). Both rows of a pair are in one micro-batch (`keep_together`).
    """

    settings: PairwiseSettings

    def __init__(self, settings: PairwiseSettings, name: str):
        super().__init__(settings, name)
        self.views = () if settings.view is None else (settings.view,)

    def count(self, batch: Batch) -> float:
        """Pairs."""
        return float(len(batch.pairs[batch.pairs >= 0].unique()))

    def total(self, output: PolicyOutput, batch: Batch) -> tuple[torch.Tensor, Sums]:
        """Summed loss over pairs; the share of pairs that are in order, and the mean margin."""
        paired = batch.pairs >= 0
        if not bool(paired.any()):
            return keep_active(output.logprobs, batch.action_mask).sum() * 0.0, {}
        sign = keep_active(batch.advantages, batch.action_mask).sum(-1).sign()
        _, number = batch.pairs[paired].unique(return_inverse=True)
        scores = (sign * self._scores(output, batch))[paired]
        margin = scores.new_zeros(int(number.max()) + 1).index_add(0, number, scores)
        loss = -functional.logsigmoid(self.settings.beta * margin)
        count = float(len(margin))
        return loss.sum(), {
            "policy/pair_accuracy": (float((margin > 0).sum()), count),
            "policy/pair_margin": (float(margin.detach().sum()), count),
        }

    def _scores(self, output: PolicyOutput, batch: Batch) -> torch.Tensor:
        """One number per row [B]."""
        s, mask = self.settings, batch.action_mask
        per_token = keep_active(output.logprobs, mask)
        if s.kind == "dpo" and s.view is not None:
            per_token = per_token - keep_active(batch.views[s.view].logprobs, mask).detach()
        if s.use_credit and CREDIT in batch.weights:
            per_token = per_token * keep_active(batch.weights[CREDIT], mask)
        total = per_token.sum(-1)
        return total if s.kind == "dpo" else total / mask.sum(-1).clamp(min=1)
