"""Settings of the credits: how a trajectory's advantage is spread over its tokens."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal

from selfdistill_cli.core.settings import Settings, in_range
from selfdistill_cli.methods.coefficient_settings import CoefficientSettings


@dataclass(frozen=True, kw_only=True)
class UniformSettings(Settings):
    """Every token keeps its trajectory's advantage."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.credit:Uniform"
    varies_by_token: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class ValueGapSettings(Settings):
    """GEAR, specification form: a value head fitted to winners reweights the advantages."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.credit:ValueGap"

    form: Literal["exp", "exp_sign", "sigmoid", "ratio"]
    """Map from the value gap to a weight; `exp_sign` follows the sign of the advantage."""
    temperature: float
    """Divides the value gap; higher is smoother."""
    exp_clamp: float
    """Bound on the exponent."""
    ratio_delta: float
    """Added to both values in the form `ratio`."""
    clip_low: float | None
    """Smallest weight, null = open."""
    clip_high: float | None
    """Largest weight, null = open."""
    normalize: bool
    """Divide the weights by their mean over the row's active tokens."""
    standardize: bool
    """Bring the value gap to mean 0 and standard deviation 1 over the row before the map."""
    ramp: float | CoefficientSettings
    """Share of the weight that is used: A * ((1 - ramp) + ramp * weight)."""
    v_orig: Literal["critic", "group_mean", "zero"]
    """The value before distillation: the critic's, the siblings' mean reward, or 0."""
    winner_fraction: float
    """Share of each group that counts as winners, at least one."""
    targets: Literal["return_to_go", "all_tokens", "key_tokens"]
    """What the head is fitted to: the discounted return-to-go, or the reward at every token, or
    at the tokens that the environment names as key."""
    gamma: float
    """Discount of the return-to-go per active token; below 1 or the targets are constant."""
    fit_epochs: int
    """Passes over the winners' tokens after each update."""
    fit_lr: float
    """Learning rate of the head."""
    fit_weight_decay: float
    """Decoupled weight decay of the head."""
    head_decay: float
    """Moving average of the head over fits, in [0, 1); 0 uses the newest head."""
    warmup_fits: int
    """Fits before the head is trusted; until then every weight is 1."""

    def __post_init__(self) -> None:
        in_range(self, 1e-6, inf, "temperature")
        if self.clip_low is not None and self.clip_high is not None:
            in_range(self, self.clip_low, inf, "clip_high")
        in_range(self, 0, 1, "winner_fraction", "gamma", "head_decay")
        in_range(self, 1, inf, "fit_epochs")
        in_range(self, 0, inf, "fit_lr", "warmup_fits")


@dataclass(frozen=True, kw_only=True)
class TokenLogRatioSettings(Settings):
    """RLSD: weight of a token from the log-ratio of a view and the student (arXiv 2604.03128)."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.view_credit:TokenLogRatio"

    view: str
    """The view that judges, usually `teacher`."""
    epsilon: float
    """Weights are clipped to [1 - epsilon, 1 + epsilon]."""
    ramp: float | CoefficientSettings
    """Share of the weight that is used: A * ((1 - ramp) + ramp * weight)."""

    def __post_init__(self) -> None:
        in_range(self, 0, 1, "epsilon")


@dataclass(frozen=True, kw_only=True)
class StepLogRatioSettings(Settings):
    """SSPO: weight of a step from the summed log-ratio, on failed trajectories only."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.view_credit:StepLogRatio"

    view: str
    """The view that judges, usually `teacher`."""
    step_unit: Literal["token", "line", "segment", "turn"]
    """What a step is: a token, a line, a run up to an entropy spike, or a turn of the agent."""
    segment_quantile: float
    """A segment ends before a token whose entropy exceeds this quantile of its row."""
    step_logratio: Literal["sum", "mean"]
    """Log-ratio of a step: over long steps a sum saturates nearly every weight."""
    epsilon: float
    """Weights are at most 1 + epsilon."""
    lower: float | None
    """Smallest weight, null = open."""
    success_threshold: float
    """Trajectories with at least this success keep their advantage."""
    scored: Literal["failed", "all"]
    """Trajectories that the view scores: `failed` saves the passes that change nothing."""
    ramp: float | CoefficientSettings
    """Share of the weight that is used: A * ((1 - ramp) + ramp * weight)."""

    def __post_init__(self) -> None:
        in_range(self, 0, 1, "segment_quantile")
        in_range(self, 0, inf, "epsilon")


@dataclass(frozen=True, kw_only=True)
class TwoViewSettings(Settings):
    """BCSD: one view with more guidance and one with less scale the magnitude of the advantage."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.view_credit:TwoView"
    view_fields: ClassVar[tuple[str, ...]] = ("augmented", "pruned")

    augmented: str
    """The view with more guidance."""
    pruned: str
    """The view with less guidance."""
    alpha: float
    """Share of the augmented view in the log-ratio."""
    epsilon: float
    """Weights are clipped to [1 - epsilon, 1 + epsilon]."""
    ramp: float | CoefficientSettings
    """Share of the weight that is used: A * ((1 - ramp) + ramp * weight)."""

    def __post_init__(self) -> None:
        in_range(self, 0, 1, "alpha", "epsilon")


@dataclass(frozen=True, kw_only=True)
class DivergenceSegmentsSettings(Settings):
    """GEAR, paper form: segments that start where a view diverges (reconstruction)."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.view_credit:DivergenceSegments"

    view: str
    """The view that judges: the student shown the answer."""
    divergence: Literal["sampled", "full"]
    """Student minus view log-probability of the token, or the reverse KL over the vocabulary."""
    anchor_quantile: float
    """A token is an anchor if its divergence exceeds this quantile of its row."""
    entropy_quantile: float
    """A segment ends before a token whose entropy exceeds this quantile of its row."""
    max_length: int
    """Tokens of a segment at most."""
    temperature: float
    """Divides the divergence; higher is smoother."""
    epsilon: float
    """Weights are clipped to [1 - epsilon, 1 + epsilon]."""
    normalize: bool
    """Divide the weights by their mean over the row's active tokens."""
    ramp: float | CoefficientSettings
    """Share of the weight that is used: A * ((1 - ramp) + ramp * weight)."""

    def __post_init__(self) -> None:
        in_range(self, 0, 1, "anchor_quantile", "entropy_quantile", "epsilon")
        in_range(self, 1, inf, "max_length")
        in_range(self, 1e-6, inf, "temperature")
