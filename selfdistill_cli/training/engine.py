"""`zero=off`: the student, its optimizer and its gradients in one process."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import torch

from selfdistill_cli.core.errors import ConfigError, Diverged
from selfdistill_cli.core.needs import Needs
from selfdistill_cli.core.seeds import seed_for
from selfdistill_cli.core.types import Batch, PolicyOutput
from selfdistill_cli.policies.causal import CausalPolicy
from selfdistill_cli.teachers.weight_copy import WeightCopy
from selfdistill_cli.training.optimizers import check_division, make_optimizer
from selfdistill_cli.training.settings import ScheduleSettings, TorchEngineSettings
from selfdistill_cli.training.world import World


def learning_rate_factor(settings: ScheduleSettings, step: int, max_steps: int) -> float:
    """Share of the peak learning rate at a step counted from 1."""
    if step <= settings.warmup_steps:
        return step / settings.warmup_steps
    if settings.schedule == "constant":
        return 1.0
    left = max(1, max_steps - settings.warmup_steps)
    progress = min(1.0, (step - settings.warmup_steps) / left)
    shape = 1.0 - progress if settings.schedule == "linear" else _half_cosine(progress)
    return settings.min_lr_ratio + (1.0 - settings.min_lr_ratio) * shape


def _half_cosine(progress: float) -> float:
    return 0.5 * (1.0 + math.cos(math.pi * progress))


class Engine(Protocol):
    """What the loop asks of an engine; see `TorchEngine`."""

    policy: CausalPolicy
    device: torch.device
    divides_weights: bool
    lockstep: bool
    config: Mapping[str, Any] | None

    def begin_step(self, step: int) -> float: ...
    def forward(self, batch: Batch, needs: Needs) -> PolicyOutput: ...
    def score(self, batch: Batch, needs: Needs) -> PolicyOutput: ...
    def score_copy(self, batch: Batch, needs: Needs) -> PolicyOutput: ...
    def backward(self, loss: torch.Tensor, last: bool) -> None: ...
    def step(self) -> float: ...
    def refresh(self) -> None: ...
    def new_copy(self, dtype: torch.dtype | None = torch.float32) -> WeightCopy: ...
    def stream_weights(self) -> Iterable[tuple[str, torch.Tensor]]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class TorchEngine:
    """Plain torch. Losses arrive already divided by their global counts.

    On several ranks every one has all weights and the whole optimizer, and gradients are summed.
    """

    divides_weights = False
    """Whether a rank has only its part of the weights while it learns."""
    lockstep = False
    """Whether all ranks must make the same number of forward and backward passes."""
    config: Mapping[str, Any] | None = None
    """What the library behind the engine was configured with, for the run directory."""

    def __init__(
        self,
        settings: TorchEngineSettings,
        policy: CausalPolicy,
        optim: ScheduleSettings,
        max_steps: int,
        seed: int,
        world: World | None = None,
    ):
        self.world = world or World()
        self.policy = policy
        self.optim = optim
        self.max_steps = max_steps
        self.seed = seed
        self.device = find_device(settings.device, self.world)
        policy.to(self.device)
        self.optimizer = make_optimizer(policy, optim)

    def begin_step(self, step: int) -> float:
        """Set the learning rate and torch's random stream (dropout); return the rate."""
        factor = learning_rate_factor(self.optim, step, self.max_steps)
        set_learning_rates(self.optimizer, factor)
        torch.manual_seed(seed_for(self.seed, "update", step))
        return self.optim.lr * factor

    def forward(self, batch: Batch, needs: Needs) -> PolicyOutput:
        """Score a batch with gradients, in training mode."""
        self.policy.train()
        return self.policy.score(batch, needs)

    @torch.no_grad()
    def score(self, batch: Batch, needs: Needs) -> PolicyOutput:
        """Score a batch without gradients and without dropout."""
        training = self.policy.training
        self.policy.eval()
        try:
            return self.policy.score(batch, needs)
        finally:
            self.policy.train(training)

    def score_copy(self, batch: Batch, needs: Needs) -> PolicyOutput:
        """Score under the copy that is in place: its weights stand in the policy's module."""
        return self.score(batch, needs)

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        """Accumulate gradients; `last` marks the update's final micro-batch."""
        loss.backward()

    def step(self) -> float:
        """Clip by the global norm, update, clear; return the norm before clipping.

        Raises Diverged, without applying the update, if the norm is not finite.
        """
        parameters = [p for g in self.optimizer.param_groups for p in g["params"]]
        self.world.sum_gradients(parameters)
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, self.optim.max_grad_norm))
        if not math.isfinite(norm):
            self.optimizer.zero_grad(set_to_none=True)
            raise not_applied(norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def refresh(self) -> None:
        """Let the policy hold the student's weights as they are now. It does: it is trained."""

    def new_copy(self, dtype: torch.dtype | None = torch.float32) -> WeightCopy:
        """A copy of the weights that it trains, in `dtype` (None: their own)."""
        return WeightCopy(self.policy.backbone, dtype)

    def stream_weights(self) -> Iterable[tuple[str, torch.Tensor]]:
        """Yield (name, tensor) of the student's weights."""
        return self.policy.weights()

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's state; the weights are saved with the policy.

        Raises Diverged if a weight is not finite, so that no checkpoint holds such weights.
        """
        check_finite(self.policy)
        return {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        check_division(self.optim, state["optimizer"]["state"], 0)
        self.optimizer.load_state_dict(state["optimizer"])


def not_applied(norm: float) -> Diverged:
    """The error for a gradient norm that is not finite."""
    return Diverged(
        f"the gradient norm is {norm}: the update was not applied. Lower optim.lr, or look at the "
        "last trajectories for the sample that caused it."
    )


def check_finite(policy: CausalPolicy) -> None:
    """Raise Diverged if a weight is not finite."""
    bad = [n for n, p in policy.named_parameters() if not bool(torch.isfinite(p).all())]
    if bad:
        raise Diverged(
            f"the last update made {len(bad)} weights not finite, {bad[0]} among them, and no "
            "checkpoint is written. Lower optim.lr, raise optim.warmup_steps, or look at the "
            "last trajectories for the sample that caused it; earlier checkpoints are intact."
        )


def set_learning_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Every group's own peak rate times a factor."""
    for group in optimizer.param_groups:
        group["lr"] = group["peak_lr"] * factor


def find_device(name: str, world: World) -> torch.device:
    """The device that `zero.device` means for this rank; raises ConfigError without a GPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "zero.device: got 'cuda', but torch sees no GPU here; use zero.device=auto or cpu, or "
            "install a torch that is built for this machine's GPU"
        )
    return torch.device("cuda", world.local_rank) if name == "cuda" else torch.device(name)
