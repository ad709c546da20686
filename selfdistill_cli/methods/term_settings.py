"""Settings of the loss terms."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal

from selfdistill_cli.core.settings import Settings, in_range
from selfdistill_cli.methods.coefficient_settings import CoefficientSettings


@dataclass(frozen=True, kw_only=True)
class PolicyGradientSettings(Settings):
    """The clipped policy-gradient surrogate and its relatives."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.terms:PolicyGradient"
    needs_critic: ClassVar[bool] = False

    coefficient: float | CoefficientSettings
    """Weight in the total loss."""
    loss_type: Literal[
        "ppo", "grpo", "dapo", "dr_grpo", "gspo", "gspo_token", "cispo", "reinforce", "a2c"
    ]
    """Surrogate and reduction, as in docs/methods.md."""
    clip_low: float
    """Ratio is clipped from below at 1 - clip_low."""
    clip_high: float
    """Ratio is clipped from above at 1 + clip_high."""
    dual_clip: float | None
    """Bound on the loss of negative advantages, null = off."""
    ratio_max: float
    """Absolute cap of the ratio (cispo only)."""
    max_completion_length: int
    """Divisor per row (dr_grpo only), in tokens."""
    sampler_clip: float | None
    """Multiply a token's loss by min(trainer / rollout engine, this), both before the update; null
    = off. Needs method.old_logprobs=recomputed."""

    def __post_init__(self) -> None:
        in_range(self, 0, inf, "clip_low", "clip_high", "ratio_max", "sampler_clip")
        in_range(self, 1, inf, "dual_clip", "max_completion_length")


@dataclass(frozen=True, kw_only=True)
class ValueLossSettings(Settings):
    """Regression of the critic to the returns; its presence creates the critic."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.terms:ValueLoss"
    needs_critic: ClassVar[bool] = True

    coefficient: float | CoefficientSettings
    """Weight in the total loss."""
    clip: float | None
    """Largest move of a value from its old estimate, null = off."""
    detach: bool
    """Stop the gradient at the hidden state, so that the critic does not move the trunk."""


@dataclass(frozen=True, kw_only=True)
class EntropySettings(Settings):
    """Entropy bonus: minimises minus the mean token entropy."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.terms:EntropyBonus"
    needs_critic: ClassVar[bool] = False

    coefficient: float | CoefficientSettings
    """Weight in the total loss; positive raises the entropy."""


@dataclass(frozen=True, kw_only=True)
class ReferenceKlSettings(Settings):
    """Sampled KL of the student to a view, in nats per token."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.terms:ReferenceKl"
    is_divergence: ClassVar[bool] = True
    needs_critic: ClassVar[bool] = False

    coefficient: float | CoefficientSettings
    """Weight in the total loss; 0 skips the view's scoring pass."""
    view: str
    """Which view is the reference."""
    estimator: Literal["k2", "k3"]
    """Schulman's estimators; k1 is left out, its gradient as a loss has expectation zero."""


@dataclass(frozen=True, kw_only=True)
class CrossEntropySettings(Settings):
    """Negative log-likelihood of the demonstrated tokens."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.terms:CrossEntropy"
    imitates: ClassVar[bool] = True
    needs_critic: ClassVar[bool] = False

    coefficient: float | CoefficientSettings
    """Weight in the total loss."""


@dataclass(frozen=True, kw_only=True)
class DistillSettings(Settings):
    """Divergence between the student and a view at every token of the chosen rows."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.distill_terms:Distill"
    is_divergence: ClassVar[bool] = True
    needs_critic: ClassVar[bool] = False

    coefficient: float | CoefficientSettings
    """Weight in the total loss."""
    view: str
    """The view that teaches, usually `teacher`."""
    direction: Literal["forward", "reverse", "jsd"]
    """forward KL(view || student), reverse KL(student || view), or the generalised JSD."""
    alpha: float
    """Weight of the view in the mixture (jsd only); 0 is forward, 1 is reverse."""
    support: Literal["full", "teacher_topk", "student_topk", "sampled"]
    """The vocabulary, K tokens and a tail bucket, or the sampled token alone."""
    topk: int
    """K (top-k supports only)."""
    estimator: Literal["k2", "k3", "score"]
    """Sampled support only: Schulman's k2 or k3, or the score function of the reverse KL."""
    temperature: float
    """Divides the logits of both sides (not with sampled support)."""
    importance_clip: float | None
    """Multiply by min(student / sampling policy, this), null = off."""
    token_clip: float | None
    """Largest divergence of a token, after the sum over the vocabulary; null = open."""
    rows: Literal["all", "failed", "solved"]
    """Which trajectories are taught."""
    only_informed: bool
    """Leave out rows whose view found none of its hints."""
    skip_tokens: int
    """Tokens at the start of every trajectory that are not taught."""
    step_unit: Literal["token", "line", "segment", "turn"]
    """What counts once in the mean: a token, a line, a run up to an entropy spike, or a turn."""
    segment_quantile: float
    """A segment ends before a token whose entropy exceeds this quantile of its row."""

    def __post_init__(self) -> None:
        in_range(self, 0, 1, "alpha", "segment_quantile")
        in_range(self, 1, inf, "topk")
        in_range(self, 1e-6, inf, "temperature")
        in_range(self, 0, inf, "importance_clip", "token_clip", "skip_tokens")


@dataclass(frozen=True, kw_only=True)
class GatedLogRatioSettings(Settings):
    """SDAR: likelihood of the own tokens, gated by how much more a view likes them."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.distill_terms:GatedLogRatio"
    needs_critic: ClassVar[bool] = False

    coefficient: float | CoefficientSettings
    """Weight in the total loss."""
    view: str
    """The view that judges, usually `teacher`."""
    gate_beta: float
    """Sharpness of the gate sigmoid(gate_beta * (log view - log student))."""

    def __post_init__(self) -> None:
        in_range(self, 0, inf, "gate_beta")


@dataclass(frozen=True, kw_only=True)
class HiddenMatchSettings(Settings):
    """Hidden states of the student against those of a view of the same shape."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.distill_terms:HiddenMatch"
    needs_critic: ClassVar[bool] = False

    coefficient: float | CoefficientSettings
    """Weight in the total loss."""
    view: str
    """The view that is matched, usually `teacher`."""
    layers: list[int]
    """Indices into the model's hidden states: 0 the embeddings, -1 the last layer."""
    distance: Literal["mse", "cosine"]
    """Mean squared difference over the width, or 1 minus the cosine."""


@dataclass(frozen=True, kw_only=True)
class PairwiseSettings(Settings):
    """Preference between the best and the worst sibling (arXiv 2305.18290, on-policy pairs)."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.preference_terms:Pairwise"
    needs_critic: ClassVar[bool] = False
    pairs: ClassVar[bool] = True

    coefficient: float | CoefficientSettings
    """Weight in the total loss."""
    kind: Literal["dpo", "rank"]
    """dpo: log-ratios to a view, summed; rank: log-probabilities, averaged over the tokens."""
    beta: float
    """Sharpness of the preference."""
    view: str | None
    """The reference of dpo; null is a uniform reference."""
    use_credit: bool
    """Multiply every token by its credit weight."""

    def __post_init__(self) -> None:
        in_range(self, 0, inf, "beta")
