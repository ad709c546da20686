"""A slow copy of weights that DeepSpeed has divided (stage 3): divided like them, in float32."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from selfdistill_cli.teachers.weight_copy import WeightCopy
from selfdistill_cli.training.world import World


class ShardedCopy(WeightCopy):
    """Follows shard by shard, without meeting the other ranks; is whole only while it acts.

    `divided` is the backbone that DeepSpeed trains, `policy` the replica that acts. Buffers are the
    replica's own. `in_place`, `scoring`, `distance` and `state_dict` are called by all ranks.
    """

    def __init__(
        self, policy: Any, divided: nn.Module, world: World, dtype: torch.dtype | None
    ):
        self.world = world
        named = divided.named_parameters()
        self.divided: dict[str, Any] = {n: p for n, p in named if p.requires_grad}
        super().__init__(policy.backbone, dtype)
        head = [tensor for tensor in policy.unembedding() if tensor is not None]
        self.head = {
            name
            for name, parameter in policy.backbone.named_parameters()
            if name in self.slow and any(parameter is tensor for tensor in head)
        }
        """Names of the unembedding, if it is trained: whoever reads logits needs it whole."""

    def _student(self) -> dict[str, torch.Tensor]:
        """This rank's part of every trained tensor, flat and without padding."""
        return {name: self._cut(name, p.ds_tensor.detach()) for name, p in self.divided.items()}

    def _bounds(self, name: str) -> tuple[int, int]:
        """Where this rank's part of a tensor begins, and how many numbers it has."""
        parameter, size = self.divided[name], self.divided[name].ds_tensor.ds_numel
        start = min(self.world.rank * size, parameter.ds_numel)
        return start, min(size, parameter.ds_numel - start)

    def _cut(self, name: str, shard: torch.Tensor) -> torch.Tensor:
        return shard.narrow(0, 0, self._bounds(name)[1])

    def distance(self) -> float:
        """Euclidean distance to the student over all ranks' parts."""
        return math.sqrt(self.world.sum([super().distance() ** 2])[0])

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside the block the replica computes with this copy."""
        with self.in_place_of(self._whole(self.slow)):
            yield

    @contextlib.contextmanager
    def scoring(self) -> Iterator[None]:
        """Inside the block the divided backbone computes with this copy, layer by layer.

        The replica keeps the student's weights, but for the unembedding, which is this copy's.
        """
        saved = {name: (p.ds_tensor.data, p.data) for name, p in self.divided.items()}
        try:
            for name, parameter in self.divided.items():
                self._put(name, parameter)
            with self.in_place_of(self._whole({name: self.slow[name] for name in self.head})):
                yield
        finally:
            for name, (shard, whole) in saved.items():
                self.divided[name].ds_tensor.data = shard
                self.divided[name].data = whole

    def _put(self, name: str, parameter: Any) -> None:
        """Exchange a rank's part for this copy's; a small tensor may be whole everywhere."""
        shard = parameter.ds_tensor.data
        own = torch.zeros_like(shard)
        own.view(-1)[: len(self.slow[name])] = self.slow[name].to(shard)
        if parameter.data.numel() == parameter.ds_numel:
            parameter.data = self._joined(name, self.slow[name]).to(parameter.data)
        parameter.ds_tensor.data = own

    def _whole(self, parts: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """All tensors put together, on every rank."""
        return {name: self._joined(name, part) for name, part in parts.items()}

    def _joined(self, name: str, part: torch.Tensor) -> torch.Tensor:
        parameter = self.divided[name]
        size = parameter.ds_tensor.ds_numel
        device = next(self.backbone.parameters()).device
        own = torch.zeros(size, dtype=part.dtype, device=device)
        own[: len(part)] = part
        parts = [torch.empty_like(own) for _ in range(self.world.size)]
        dist.all_gather(parts, own)
        return torch.cat(parts)[: parameter.ds_numel].view(parameter.ds_shape)

    def state_dict(self) -> dict[str, Any]:
        """The copy and what it remembers, whole, on rank 0."""
        return {"slow": self._kept(self.slow), "good": self.good and self._kept(self.good)}

    def _kept(self, parts: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        whole = {name: self._joined(name, part).cpu() for name, part in parts.items()}
        return whole if self.world.is_first else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take this rank's parts of whole tensors."""
        self.slow = self._parts(state["slow"])
        self.good = None if state["good"] is None else self._parts(state["good"])

    def _parts(self, whole: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        out: dict[str, torch.Tensor] = {}
        for name, own in self.slow.items():
            out[name] = whole[name].flatten().narrow(0, *self._bounds(name)).to(own, copy=True)
        return out
