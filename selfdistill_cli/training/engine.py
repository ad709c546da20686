"""`zero=off`: the student, its optimizer and its gradients in one process."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from selfdistill_cli.core.errors import ConfigError, RunError
from selfdistill_cli.core.needs import Needs
from selfdistill_cli.core.seeds import seed_for
from selfdistill_cli.core.types import Batch, PolicyOutput
from selfdistill_cli.policies.causal import CausalPolicy
from selfdistill_cli.training.optimizers import make_optimizer
from selfdistill_cli.training.settings import ScheduleSettings, TorchEngineSettings


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


class TorchEngine:
    """Plain torch on one device. Losses arrive already divided by their global counts."""

    def __init__(
        self,
        settings: TorchEngineSettings,
        policy: CausalPolicy,
        optim: ScheduleSettings,
        max_steps: int,
        seed: int,
    ):
        self.policy = policy
        self.optim = optim
        self.max_steps = max_steps
        self.seed = seed
        self.device = _device(settings.device)
        policy.to(self.device)
        self.optimizer = make_optimizer(policy, optim)

    def begin_step(self, step: int) -> float:
        """Set the learning rate and torch's random stream (dropout); return the rate."""
        factor = learning_rate_factor(self.optim, step, self.max_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak_lr"] * factor
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

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        """Accumulate gradients; `last` marks the update's final micro-batch."""
        loss.backward()

    def step(self) -> float:
        """Clip by the global norm, update, clear; return the norm before clipping.

        Raises RunError, without applying the update, if the norm is not finite.
        """
        parameters = [p for g in self.optimizer.param_groups for p in g["params"]]
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, self.optim.max_grad_norm))
        if not math.isfinite(norm):
            self.optimizer.zero_grad(set_to_none=True)
            raise RunError(
                f"the gradient norm is {norm}: the update was not applied. Lower optim.lr, or "
                "look at the last trajectories for the sample that caused it."
            )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def stream_weights(self) -> Iterable[tuple[str, torch.Tensor]]:
        """Yield (name, tensor) of the student's weights."""
        return self.policy.weights()

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's state; the weights are saved with the policy.

        Raises RunError if a weight is not finite, so that no checkpoint holds such weights.
        """
        bad = [n for n, p in self.policy.named_parameters() if not bool(torch.isfinite(p).all())]
        if bad:
            raise RunError(
                f"the last update made {len(bad)} weights not finite, {bad[0]} among them, and no "
                "checkpoint is written. Lower optim.lr, raise optim.warmup_steps, or look at the "
                "last trajectories for the sample that caused it; earlier checkpoints are intact."
            )
        return {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.optimizer.load_state_dict(state["optimizer"])


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "zero.device: got 'cuda', but torch sees no GPU here; use zero.device=auto or cpu, or "
            "install a torch that is built for this machine's GPU"
        )
    return torch.device(name)
