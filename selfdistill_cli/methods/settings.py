"""Settings of a method and of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal

from selfdistill_cli.core.hints import HintKind
from selfdistill_cli.core.settings import Settings, ViewSettings, in_range


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
    evaluate_teacher: bool
    """Evaluate the slow copy too, whenever the student is: `eval/teacher_success`."""

    def __post_init__(self) -> None:
        in_range(self, 1, inf, "group_size")


# --- source ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PlaySettings(Settings):
    """Samples come from episodes played by the student."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.source:Play"
    plays: ClassVar[bool] = True

    split: str
    """Which tasks of the environment."""
    max_rounds: int
    """Dynamic sampling: rounds in which flat groups are replaced by further tasks; 1 = off."""

    def __post_init__(self) -> None:
        in_range(self, 1, inf, "max_rounds")


@dataclass(frozen=True, kw_only=True)
class ReplaySettings(PlaySettings):
    """Episodes of this step and some of earlier steps, with the log-probs that sampled them."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.source:Replay"
    replays: ClassVar[bool] = True

    share: float
    """Part of a step's groups that comes from earlier steps, in [0, 1)."""
    capacity: int
    """Groups that are kept."""
    max_staleness: int
    """Groups sampled more steps ago are dropped."""

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(self, 0, 0.99, "share")
        in_range(self, 1, inf, "capacity", "max_staleness")


@dataclass(frozen=True, kw_only=True)
class MixedSettings(PlaySettings):
    """Episodes of the student and demonstrations, side by side (GKD's on-policy share)."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.source:Mixed"
    demonstrates: ClassVar[bool] = True

    on_policy: float
    """Part of a step's tasks that the student plays; the rest are demonstrated."""
    demonstrations: str
    """Split of the demonstrated tasks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(self, 0, 1, "on_policy")


@dataclass(frozen=True, kw_only=True)
class DatasetSettings(Settings):
    """Samples are demonstrations: the tasks' reference answers (supervised fine-tuning)."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.source:Dataset"
    demonstrates: ClassVar[bool] = True
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
    ranks_siblings: ClassVar[bool] = True
    needs_critic: ClassVar[bool] = False

    mode: Literal["grpo", "dr_grpo", "rloo", "rank", "pairwise"]
    """z-score, minus mean, minus the others' mean, rank in [-1, 1], best +1 and worst -1."""
    epsilon: float
    """Added to the standard deviation (grpo only)."""
    rank_by: Literal["reward", "reweighted_mean", "reweighted_total"]
    """Compare rewards, or once more, after the credit: the mean or sum of a trajectory's weights
    times its advantage."""


@dataclass(frozen=True, kw_only=True)
class WinnersSettings(Settings):
    """Only winners are learned from: the best share of every group that is not flat."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.advantage:Winners"
    chooses_samples: ClassVar[bool] = True
    group_relative: ClassVar[bool] = True
    needs_critic: ClassVar[bool] = False

    fraction: float
    """Share of each group that counts as winners, at least one."""
    only_solved: bool
    """A winner must have solved its task; then a group that is flat and solved wins as a whole."""

    def __post_init__(self) -> None:
        in_range(self, 0, 1, "fraction")


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

    def __post_init__(self) -> None:
        in_range(self, 0, 1, "gamma", "lam")


@dataclass(frozen=True, kw_only=True)
class NoAdvantageSettings(Settings):
    """No advantage: supervised and pure distillation recipes."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.advantage:NoAdvantage"
    gives_nothing: ClassVar[bool] = True
    group_relative: ClassVar[bool] = False
    needs_critic: ClassVar[bool] = False


# --- sync -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class NoSyncSettings(Settings):
    """There is no slow copy."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.sync:NoSync"
    keeps_copy: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class SlowCopySettings(Settings):
    """What all ways to follow the student have in common."""

    keeps_copy: ClassVar[bool] = True

    unit: Literal["update", "step"]
    """What is counted: optimizer updates, or steps (a collection with all its updates)."""
    scope: Literal["all", "head"]
    """Copy all trained weights, or the unembedding alone on the student's own trunk."""
    lora_average: Literal["factors", "product"]
    """Over adapters: average A and B (an approximation), or their product (exact and dense)."""
    pause_kl: float | None
    """Do not follow after a step whose `teacher/kl` exceeds this, in nats per token; null = off."""
    rollback_kl: float | None
    """After such a step go back to the copy as it was at the best evaluation; null = off."""
    save_every: int
    """Steps between skill checkpoints: the slow copy as a policy of its own, 0 = off."""

    def __post_init__(self) -> None:
        in_range(self, 0, inf, "pause_kl", "rollback_kl", "save_every")


@dataclass(frozen=True, kw_only=True)
class EmaSettings(SlowCopySettings):
    """Exponential moving average: slow = decay * slow + (1 - decay) * student."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.sync:Ema"

    decay: float
    """Share of the slow copy that is kept: 0 is the student, 1 is frozen."""
    full_sync_every: int
    """Units between full copies of the student, 0 = off."""

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(self, 0, 1, "decay")
        in_range(self, 0, inf, "full_sync_every")


@dataclass(frozen=True, kw_only=True)
class HardSettings(SlowCopySettings):
    """A full copy of the student every so often."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.sync:Hard"

    every: int
    """Units between copies."""

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(self, 1, inf, "every")


@dataclass(frozen=True, kw_only=True)
class GatedSettings(SlowCopySettings):
    """A full copy when the student beats the copy on the validation panel."""

    implementation: ClassVar[str] = "selfdistill_cli.methods.sync:Gated"
    needs_evaluation: ClassVar[bool] = True

    margin: float
    """By how much the student's success must exceed the copy's."""
    patience: int
    """Evaluations in a row that must do so, against noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(self, 0, 1, "margin")
        in_range(self, 1, inf, "patience")
