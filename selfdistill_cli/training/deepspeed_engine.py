"""`zero=zero1` to `zero3_offload`: DeepSpeed trains. The only module that imports it.

Stages 1 and 2 train the policy's own module. Stage 3 divides a copy of it, and the policy is a
plain replica that is filled after every step: it samples and scores without meeting the other
ranks, so episodes may differ in length (deepspeed#8262), and it is empty while learning.
"""

from __future__ import annotations

import contextlib
import copy
import io
import math
import os
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.core.needs import Needs
from selfdistill_cli.core.seeds import seed_for
from selfdistill_cli.core.types import Batch, PolicyOutput
from selfdistill_cli.policies.causal import CausalPolicy
from selfdistill_cli.teachers.weight_copy import WeightCopy
from selfdistill_cli.training.deepspeed_config import merged, read_config
from selfdistill_cli.training.deepspeed_shards import Shards
from selfdistill_cli.training.engine import (
    check_finite,
    find_device,
    learning_rate_factor,
    not_applied,
    set_learning_rates,
)
from selfdistill_cli.training.optimizers import check_division, make_optimizer
from selfdistill_cli.training.settings import DeepSpeedSettings, ScheduleSettings
from selfdistill_cli.training.sharded_copy import ShardedCopy
from selfdistill_cli.training.world import World

CHUNK = 16
"""Tensors of a divided model that are whole at once while the replica is filled."""


class DeepSpeedEngine:
    """The same as `TorchEngine`, with what training keeps divided among the ranks."""

    lockstep = True

    def __init__(
        self,
        settings: DeepSpeedSettings,
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
        given = read_config(settings.config)
        self.divides_weights = given["zero_optimization"]["stage"] == 3
        library = _import(self.device)
        policy.to(self.device)
        trained = _twin(policy) if self.divides_weights else policy
        dtype = policy.unembedding()[0].dtype
        self.config = merged(given, optim, bf16=dtype == torch.bfloat16)
        self.optimizer = make_optimizer(trained, optim)
        self.members = [list(group["params"]) for group in self.optimizer.param_groups]
        self.trained = trained
        with contextlib.redirect_stdout(io.StringIO()):  # it reports memory, group by group
            self.engine: Any = library.initialize(
                model=Scored(trained, library if self.divides_weights else None),
                optimizer=self.optimizer,
                config=copy.deepcopy(self.config),
            )[0]
        self.library = library
        self.parameters = [p for members in self.members for p in members]
        self.shards = Shards(self.engine.optimizer, self.parameters, self.device, self.world)

    def begin_step(self, step: int) -> float:
        """Set the learning rate and torch's random stream (dropout); return the rate."""
        factor = learning_rate_factor(self.optim, step, self.max_steps)
        set_learning_rates(self.optimizer, factor)
        torch.manual_seed(seed_for(self.seed, "update", step))
        return self.optim.lr * factor

    def forward(self, batch: Batch, needs: Needs) -> PolicyOutput:
        """Score a batch with gradients, in training mode. All ranks call it together."""
        if self.divides_weights:
            _empty(self.policy)
        self.world.note("learning", "a micro-batch", waiting=True)
        self.engine.train()
        return PolicyOutput(**self.engine(batch, needs))

    @torch.no_grad()
    def score(self, batch: Batch, needs: Needs) -> PolicyOutput:
        """Score a batch without gradients and without dropout; no rank waits for another."""
        training = self.policy.training
        self.policy.eval()
        try:
            return self.policy.score(batch, needs)
        finally:
            self.policy.train(training)

    @torch.no_grad()
    def score_copy(self, batch: Batch, needs: Needs) -> PolicyOutput:
        """Score under the copy that is in place, without gradients and without dropout.

        In stage 3 it is divided as the weights are and stands in their place: all ranks call this
        together, and one layer is whole at a time.
        """
        if not self.divides_weights:
            return self.score(batch, needs)
        self.world.note("judging", "a micro-batch under a slow copy", waiting=True)
        self.engine.eval()
        return PolicyOutput(**self.engine(batch, needs))

    def backward(self, loss: torch.Tensor, last: bool) -> None:
        """Accumulate gradients; `last` marks the update's final micro-batch.

        DeepSpeed takes the mean over ranks of losses; ours are parts of one sum.
        """
        self.engine.set_gradient_accumulation_boundary(last)
        self.engine.backward(loss * self.world.size)

    def step(self) -> float:
        """Clip by the global norm, update, clear; return the norm before clipping.

        Raises Diverged, without applying the update, if the norm is not finite.
        """
        self.engine.step()
        norm = float(self.engine.get_global_grad_norm())
        if not math.isfinite(norm):
            raise not_applied(norm)
        return norm

    @torch.no_grad()
    def refresh(self) -> None:
        """Let the policy hold the student's weights as they are now."""
        if not self.divides_weights:
            return
        replica = dict(self.policy.named_parameters())
        named = list(self.trained.named_parameters())
        for start in range(0, len(named), CHUNK):
            chunk = named[start : start + CHUNK]
            with self.library.zero.GatheredParameters([p for _, p in chunk]):
                for name, parameter in chunk:
                    whole = parameter.data.to(replica[name].dtype, copy=True)
                    replica[name].data = whole.view(parameter.ds_shape)  # pyright: ignore

    def new_copy(self, dtype: torch.dtype | None = torch.float32) -> WeightCopy:
        """A copy of the weights that it trains, divided as they are, in `dtype` (None: theirs)."""
        if not self.divides_weights:
            return WeightCopy(self.policy.backbone, dtype)
        return ShardedCopy(self.policy, self.trained.backbone, self.world, dtype)

    def stream_weights(self) -> Iterable[tuple[str, torch.Tensor]]:
        """Yield (name, tensor) of the student's weights."""
        return self.policy.weights()

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's state in torch's own form, whole, on rank 0: any number of ranks and
        any stage can go on from it. Called by all ranks."""
        check_finite(self.policy)
        optimizer = {
            "state": self.shards.optimizer_state(),
            "param_groups": self._param_groups(),
        }
        if self.policy.unembedding()[0].dtype == torch.float32:
            return {"optimizer": optimizer}  # the weights of the policy are the master weights
        return {"optimizer": optimizer, "master": self.shards.master_weights()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what an engine's `state_dict` returned; the policy holds its weights already."""
        replica = dict(self.policy.named_parameters())
        names = {id(p): name for name, p in self.trained.named_parameters()}
        if self.divides_weights:
            for name, parameter in self.trained.named_parameters():
                self.shards.set_divided(parameter, replica[name].data)
        master = state.get("master", {})
        for i, parameter in enumerate(self.parameters):
            whole = master[i] if i in master else replica[names[id(parameter)]].data
            self.shards.set_master(parameter, whole)
        kept = state["optimizer"]["state"]
        check_division(self.optim, kept, self.world.size)
        self.shards.load_optimizer_state(kept)

    def _param_groups(self) -> list[dict[str, Any]]:
        """What torch would say of the groups, with numbers for parameters."""
        place = {id(p): i for i, p in enumerate(self.parameters)}
        return [
            {
                **{name: value for name, value in group.items() if name != "params"},
                "params": [place[id(p)] for p in members],
            }
            for group, members in zip(self.optimizer.param_groups, self.members, strict=True)
        ]


class Scored(nn.Module):
    """The policy as a module whose call is `score`: what DeepSpeed wraps."""

    def __init__(self, policy: CausalPolicy, library: Any):
        super().__init__()
        self.policy = policy
        if library is not None:
            # The unembedding is read in chunks, outside the forward pass of its own module.
            for tensor in policy.unembedding():
                if tensor is not None:
                    library.zero.register_external_parameter(self, tensor)

    def forward(self, batch: Batch, needs: Needs) -> dict[str, Any]:
        """Score; a plain mapping, because DeepSpeed looks for tensors in it."""
        return dict(vars(self.policy.score(batch, needs)))


def _import(device: torch.device) -> Any:
    """DeepSpeed, kept from compiling anything; raises ConfigError if it is not installed."""
    os.environ.setdefault("DS_ACCELERATOR", device.type)
    os.environ.setdefault("LOCAL_RANK", "0")  # it insists, where one process was started by hand
    try:
        import deepspeed
        import deepspeed.ops
        from deepspeed.utils import logger
    except ImportError as error:
        raise ConfigError(
            "zero: DeepSpeed is not installed; install selfdistill[zero], or use zero=off"
        ) from error
    logger.setLevel("ERROR")
    # It calls functions of torch by names that torch has begun to replace.
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
    # Its first use would compile an all-reduce over shared memory; gloo has one.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    if not dist.is_initialized():  # one process
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    deepspeed.init_distributed(dist_init_required=False)
    return deepspeed


def _twin(policy: CausalPolicy) -> CausalPolicy:
    """A second policy with equal weights and the same tokenizer."""
    return copy.deepcopy(policy, {id(policy.chat): policy.chat})


def _empty(policy: CausalPolicy) -> None:
    """Give the weights' memory back."""
    for parameter in policy.parameters():
        if parameter.numel():
            parameter.data = torch.empty(0, dtype=parameter.dtype, device=parameter.device)
