"""Settings of a method and of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from selfdistill_cli.core.hints import HintKind
from selfdistill_cli.core.settings import Settings, ViewSettings


@dataclass(frozen=True, kw_only=True)
class LinearSettings(Settings):
    """A coefficient that moves linearly and then stays."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.coefficients:Linear"

    start: float
    """Value at step 1."""
    end: float
    """Value from step `steps` on."""
    steps: int
    """Steps from start to end."""


@dataclass(frozen=True, kw_only=True)
class MethodSettings(Settings):
    """A recipe: six parts and how they are joined."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.method:Method"

    name: str
    """Shown to people and used in default run names."""
    group_size: int
    """Episodes per task in one step."""
    drop_flat_groups: bool
    """Leave groups without reward differences out of the update, denominators included."""
    old_logprobs: Literal["sampled", "recomputed"]
    """What the ratio is taken against: the rollout's own log-probs, or a scoring pass."""
    source: Settings
    """Where samples come from."""
    views: Mapping[str, ViewSettings]
    """Other weights and contexts under which the sampled tokens are scored, by name."""
    advantage: Settings
    """How good a trajectory was."""
    credit: Settings
    """How that is spread over its tokens."""
    terms: Mapping[str, Settings]
    """What is minimised: named loss terms."""
    sync: Settings
    """How the slow copy follows the student."""


# --- source ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PlaySettings(Settings):
    """Samples come from episodes played by the student."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.source:Play"
    plays: ClassVar[bool] = True

    split: str
    """Which tasks of the environment."""


@dataclass(frozen=True, kw_only=True)
class DatasetSettings(Settings):
    """Samples are demonstrations: the tasks' reference answers (supervised fine-tuning)."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.source:Dataset"
    plays: ClassVar[bool] = False

    split: str
    """Tasks demonstrated without a hint."""
    hints: Mapping[HintKind, float]
    """Share of the examples that carry a hint of this kind; what is left carries none."""
    hint_split: str
    """Tasks demonstrated with a hint."""


# --- advantage ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GroupAdvantageSettings(Settings):
    """Reward compared with the siblings' rewards; the same at every token."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.advantage:GroupAdvantage"
    group_relative: ClassVar[bool] = True
    needs_critic: ClassVar[bool] = False

    mode: Literal["grpo", "dr_grpo", "rloo", "rank", "pairwise"]
    """z-score, minus mean, minus the others' mean, rank in [-1, 1], best +1 and worst -1."""
    epsilon: float
    """Added to the standard deviation (grpo only)."""


@dataclass(frozen=True, kw_only=True)
class GeneralizedAdvantageSettings(Settings):
    """Generalised advantage estimation over active tokens; needs the critic (term `value`)."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.advantage:GeneralizedAdvantage"
    group_relative: ClassVar[bool] = False
    needs_critic: ClassVar[bool] = True

    gamma: float
    """Discount per token."""
    lam: float
    """Trace decay of the estimator."""
    whiten: bool
    """Scale advantages to mean 0 and standard deviation 1 over the step's active tokens."""


@dataclass(frozen=True, kw_only=True)
class NoAdvantageSettings(Settings):
    """No advantage: supervised and pure distillation recipes."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.advantage:NoAdvantage"
    group_relative: ClassVar[bool] = False
    needs_critic: ClassVar[bool] = False


# --- credit ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class UniformSettings(Settings):
    """Every token keeps its trajectory's advantage."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.credit:Uniform"


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
    ramp: float | LinearSettings
    """Share of the weight that is used: A * ((1 - ramp) + ramp * weight)."""
    v_orig: Literal["critic", "group_mean", "zero"]
    """The value before distillation: the critic's, the siblings' mean reward, or 0."""
    winner_fraction: float
    """Share of each group that counts as winners, at least one."""
    targets: Literal["return_to_go", "all_tokens"]
    """What the head is fitted to: the discounted return-to-go, or the reward at every token."""
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


# --- terms ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PolicyGradientSettings(Settings):
    """The clipped policy-gradient surrogate and its relatives."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.terms:PolicyGradient"
    needs_critic: ClassVar[bool] = False

    coefficient: float | LinearSettings
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


@dataclass(frozen=True, kw_only=True)
class ValueLossSettings(Settings):
    """Regression of the critic to the returns; its presence creates the critic."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.terms:ValueLoss"
    needs_critic: ClassVar[bool] = True

    coefficient: float | LinearSettings
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

    coefficient: float | LinearSettings
    """Weight in the total loss; positive raises the entropy."""


@dataclass(frozen=True, kw_only=True)
class ReferenceKlSettings(Settings):
    """Sampled KL of the student to a view, in nats per token."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.terms:ReferenceKl"
    needs_critic: ClassVar[bool] = False

    coefficient: float | LinearSettings
    """Weight in the total loss; 0 skips the view's scoring pass."""
    view: str
    """Which view is the reference."""
    estimator: Literal["k2", "k3"]
    """Schulman's estimators; k1 is left out, its gradient as a loss has expectation zero."""


@dataclass(frozen=True, kw_only=True)
class CrossEntropySettings(Settings):
    """Negative log-likelihood of the demonstrated tokens."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.terms:CrossEntropy"
    needs_critic: ClassVar[bool] = False

    coefficient: float | LinearSettings
    """Weight in the total loss."""


# --- sync -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NoSyncSettings(Settings):
    """There is no slow copy."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.sync:NoSync"
