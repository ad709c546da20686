"""The optimizer that the group `optim` names, over everything that a policy trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from selfdistill_cli.core.errors import CheckpointError
from selfdistill_cli.policies.causal import CausalPolicy
from selfdistill_cli.training.settings import (
    Adam8bitSettings,
    OptimSettings,
    ScheduleSettings,
    SgdSettings,
)


def make_optimizer(policy: CausalPolicy, optim: ScheduleSettings) -> torch.optim.Optimizer:
    """The optimizer of the settings, over everything that the policy trains.

    Raises ConfigError where 8-bit state cannot be kept.
    """
    groups = _parameter_groups(policy, optim)
    if isinstance(optim, SgdSettings):
        return torch.optim.SGD(groups, lr=optim.lr, momentum=optim.momentum)
    assert isinstance(optim, OptimSettings), "the settings name an optimizer"
    betas = (optim.beta1, optim.beta2)
    if isinstance(optim, Adam8bitSettings):
        from selfdistill_cli.policies.quantization import adamw_8bit

        return adamw_8bit(groups, lr=optim.lr, betas=betas, eps=optim.epsilon)
    return torch.optim.AdamW(groups, lr=optim.lr, betas=betas, eps=optim.epsilon)


def check_division(optim: ScheduleSettings, state: Mapping[Any, Any], num_parts: int) -> None:
    """Raise CheckpointError if 8-bit moments were kept in another number of parts; 0: undivided.

    `state` is what an engine's checkpoint holds of the optimizer; before a first update nothing.
    """
    found = len(state.get("ranks", []))
    if isinstance(optim, Adam8bitSettings) and state and found != num_parts:
        ways = ["with zero=off" if n == 0 else f"on {n} ranks" for n in (found, num_parts)]
        raise CheckpointError(
            f"optim=adamw_8bit: the checkpoint was made {ways[0]} and is read {ways[1]}; blocks of "
            "8-bit moments cannot be divided anew. Go on as before, or start a new run from the "
            "weights with policy.init_from"
        )


def _parameter_groups(policy: CausalPolicy, optim: ScheduleSettings) -> list[dict[str, Any]]:
    """Matrices are decayed, vectors are not; the critic's head has its own learning rate."""
    head = {id(p) for p in policy.value_head.parameters()} if policy.value_head else set()
    trained = [p for p in policy.parameters() if p.requires_grad]
    groups = [
        ([p for p in trained if id(p) not in head and p.ndim >= 2], optim.lr, optim.weight_decay),
        ([p for p in trained if id(p) not in head and p.ndim < 2], optim.lr, 0.0),
        ([p for p in trained if id(p) in head], optim.value_lr or optim.lr, 0.0),
    ]
    return [
        {"params": parameters, "weight_decay": decay, "peak_lr": rate}
        for parameters, rate, decay in groups
        if parameters
    ]
