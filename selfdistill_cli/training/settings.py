"""Settings of the rooms that training owns: engine, optimizer, checkpoints, evaluation, guards."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal

from selfdistill_cli.core.durations import positive_durations
from selfdistill_cli.core.hints import HintKind
from selfdistill_cli.core.settings import Settings, in_range


@dataclass(frozen=True, kw_only=True)
class TorchEngineSettings(Settings):
    """`zero=off`: plain torch; several processes hold equal copies of everything."""

    implementation: ClassVar[str] = "selfdistill_cli.training.engine:TorchEngine"

    device: Literal["auto", "cpu", "cuda"]
    """`auto` takes a GPU if torch sees one."""


@dataclass(frozen=True, kw_only=True)
class DeepSpeedSettings(Settings):
    """`zero=zero1` to `zero3_offload`: DeepSpeed divides what training keeps among the ranks."""

    implementation: ClassVar[str] = "selfdistill_cli.training.deepspeed_engine:DeepSpeedEngine"

    device: Literal["auto", "cpu", "cuda"]
    """`auto` takes a GPU if torch sees one."""
    config: str
    """JSON file of DeepSpeed's memory and communication keys: a path, or a name in
    launch/deepspeed. What the configuration owns (batches, optimizer, clipping, precision) is added
    to it and must not stand in it."""


@dataclass(frozen=True, kw_only=True)
class ScheduleSettings(Settings):
    """What every optimizer has: learning rates, decay, clipping, a schedule."""

    implementation: ClassVar[str] = ""

    lr: float
    """Peak learning rate."""
    value_lr: float | None
    """Learning rate of the critic's head, null = lr."""
    weight_decay: float
    """Weight decay, on matrices only."""
    max_grad_norm: float
    """Gradients are scaled down to this global norm."""
    schedule: Literal["constant", "linear", "cosine"]
    """Shape after the warm-up, down to `min_lr_ratio` at run.max_steps."""
    warmup_steps: int
    """Steps of linear warm-up from 0."""
    min_lr_ratio: float
    """Final learning rate as a share of `lr`."""

    def __post_init__(self) -> None:
        in_range(self, 0, inf, "lr", "value_lr", "weight_decay", "warmup_steps")
        in_range(self, 1e-12, inf, "max_grad_norm")
        in_range(self, 0, 1, "min_lr_ratio")


@dataclass(frozen=True, kw_only=True)
class OptimSettings(ScheduleSettings):
    """AdamW, whose weight decay is decoupled."""

    beta1: float
    """Decay of the first moment."""
    beta2: float
    """Decay of the second moment."""
    epsilon: float
    """Added to the root of the second moment."""

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(self, 0, 0.999999, "beta1", "beta2")
        in_range(self, 1e-30, 1, "epsilon")


@dataclass(frozen=True, kw_only=True)
class SgdSettings(ScheduleSettings):
    """Gradient descent, for comparisons that AdamW's division would blur."""

    momentum: float
    """Decay of the running sum of gradients, 0 = none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(self, 0, 0.999999, "momentum")


@dataclass(frozen=True, kw_only=True)
class Adam8bitSettings(OptimSettings):
    """AdamW whose moments take one byte each; needs bitsandbytes (selfdistill[quant])."""


@dataclass(frozen=True, kw_only=True)
class CheckpointSettings(Settings):
    """When complete state is written and what is kept."""

    implementation: ClassVar[str] = ""

    every: int
    """Steps between checkpoints; the last step always writes one."""
    keep: int
    """Newest checkpoints to keep; the best one is kept besides."""
    best_metric: str
    """Evaluation metric that decides which one is best; higher is better."""
    background: bool
    """Train on while a checkpoint is written: a save costs a copy of its tensors in host memory."""


@dataclass(frozen=True, kw_only=True)
class ResumeSettings(Settings):
    """What to do when the run directory exists."""

    implementation: ClassVar[str] = ""

    mode: Literal["auto", "must", "never"]
    """auto: continue if there is a checkpoint; must: fail without one; never: fail with one."""
    allow: list[str]
    """Keys that may differ from the first start, for example [optim.lr]."""
    step: int | None
    """Go back to this step's checkpoint; later ones are set aside. null = the newest."""


@dataclass(frozen=True, kw_only=True)
class EvalSettings(Settings):
    """Evaluation on a fixed panel, before the first step, every `every` steps and at the end."""

    implementation: ClassVar[str] = ""

    every: int
    """Steps between evaluations, 0 = off."""
    panel: str
    """Split of the environment that the panel is taken from."""
    num_tasks: int
    """Tasks in the panel: the first ones of the split, always the same."""
    samples_per_task: int
    """Attempts per task."""
    temperature: float
    """Sampling temperature, 0 = greedy."""
    hints: list[HintKind]
    """Privileged text in the prompt; empty measures the student alone."""


@dataclass(frozen=True, kw_only=True)
class GuardSettings(Settings):
    """When a run is stopped, or a warning is given, because it went wrong."""

    implementation: ClassVar[str] = "selfdistill_cli.training.guards:Guards"

    on_nonfinite: Literal["stop", "warn"]
    """A loss or gradient that is not finite; the step's update is never applied."""
    on_collapse: Literal["stop", "warn", "off"]
    """Mean reward that fell far below its best."""
    collapse_window: int
    """Steps that the mean reward is averaged over."""
    collapse_fraction: float
    """Collapse means a mean below this share of the best one."""
    on_reward_error: Literal["mask", "zero", "retry", "abort"]
    """A whole reward that fails for a trajectory: reject it, give it 0, ask again, or stop."""
    reward_retries: int
    """How often on_reward_error=retry asks again before it rejects."""
    reward_error_budget: int
    """Failures of the whole reward that a run endures; one more stops it."""
    rank_window: int
    """Steps over which it is watched whether the reward can rank."""
    rank_floor: float
    """Smallest share of pairs, solved and not, in the right order; below it a warning is given."""

    def __post_init__(self) -> None:
        in_range(self, 1, inf, "collapse_window", "rank_window")
        in_range(self, 0, 1, "collapse_fraction", "rank_floor")
        in_range(self, 0, 100, "reward_retries")
        in_range(self, 0, 10**9, "reward_error_budget")


@dataclass(frozen=True, kw_only=True)
class RunSettings(Settings):
    """What the run is called, where it lies and how long it goes on."""

    implementation: ClassVar[str] = ""

    name: str | None
    """Directory under `root`; null makes a readable one from method, env, seed and a hash."""
    root: str
    """Folder of all runs."""
    max_steps: int
    """Collections with their updates."""
    num_threads: int
    """Threads of torch; the same number gives the same bytes."""
    trajectories_every: int
    """Steps between files of sampled trajectories, 0 = off."""
    trajectories_limit: int
    """Trajectories in one file."""
    stop_after: str | float | None
    """Time that this call may take, such as 3h50m; it stops with a checkpoint before it is over."""
    grace: str | float | None
    """Time from a signal, or the end of stop_after, in which the step must end, such as 60s; for
    runs of one process."""

    def __post_init__(self) -> None:
        in_range(self, 1, 10**9, "max_steps")
        in_range(self, 1, 4096, "num_threads")
        positive_durations(self, "stop_after", "grace")


@dataclass(frozen=True, kw_only=True)
class TrainSettings(Settings):
    """The whole configuration: one field per group of conf/."""

    implementation: ClassVar[str] = ""

    seed: int
    """Keys every random stream of the run."""
    run: RunSettings
    """Name, place and length of the run."""
    policy: Settings
    """The student."""
    teacher: Settings
    """The view named `teacher`."""
    reward: Settings
    """Scores a finished episode."""
    env: Settings
    """Tasks and episodes."""
    method: Settings
    """The recipe."""
    rollout: Settings
    """The engine that samples."""
    optim: ScheduleSettings
    """Optimizer and schedule."""
    batch: Settings
    """Sizes of collections, updates and micro-batches."""
    zero: Settings
    """The engine that trains."""
    checkpoint: CheckpointSettings
    """When state is written."""
    resume: ResumeSettings
    """What to do with an existing run directory."""
    tracker: Settings
    """Copies of metrics.jsonl elsewhere."""
    eval: EvalSettings
    """The fixed panel."""
    guards: GuardSettings
    """When a run is stopped because it went wrong."""
    launcher: Settings
    """What starts the processes."""
    sweep: Settings
    """What `selfdistill train -m` does with the runs that it starts."""
