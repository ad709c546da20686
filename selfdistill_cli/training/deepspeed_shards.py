"""Where DeepSpeed keeps a parameter's part of the master weights and of the optimizer's state.

It flattens every parameter group and gives each rank one part of it. Whole tensors are put
together on rank 0 for a checkpoint, and taken apart from one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from selfdistill_cli.training.world import World


@dataclass(frozen=True)
class Part:
    """What this rank has of one parameter."""

    flat: torch.Tensor
    """The flat float32 tensor that the optimizer updates."""
    offset: int
    """Where the part begins in it."""
    start: int
    """Where the part begins in the flattened parameter."""
    count: int
    """Numbers in the part."""

    def of(self, like_flat: torch.Tensor) -> torch.Tensor:
        """The part of a tensor that is laid out as `flat`."""
        return like_flat.narrow(0, self.offset, self.count)

    def cut(self, whole: torch.Tensor) -> torch.Tensor:
        """The part of a whole parameter."""
        return whole.flatten().narrow(0, self.start, self.count)


class Shards:
    """The trained parameters, in torch's own order, under DeepSpeed's optimizer `zero`."""

    def __init__(
        self, zero: Any, parameters: Sequence[Any], device: torch.device, world: World
    ):
        self.world = world
        self.zero = zero
        self.parameters = parameters
        self.device = device
        self.state: Any = zero.optimizer.state
        self.divides_weights = hasattr(zero, "fp32_partitioned_groups_flat")

    def part(self, parameter: Any) -> Part | None:
        """This rank's part of a trained parameter, None if it has none."""
        if self.divides_weights:
            group, offset, size = self.zero.grad_position[self.zero.get_param_id(parameter)]
            start = self.world.rank * parameter.ds_tensor.ds_numel
            count = max(0, min(size, parameter.ds_numel - start))
            flat = self.flats[group]
            return Part(flat, offset, start, count) if count else None
        mapping = parameter._hp_mapping
        if mapping is None:
            return None
        flat = self.flats[mapping.param_group_index]
        master, whole = mapping.hp_fragment_address, mapping.lp_fragment_address
        return Part(flat, master.start, whole.start, whole.numel)

    @property
    def flats(self) -> Sequence[torch.Tensor]:
        """What the optimizer updates, flat; stage 1 in bfloat16 has a class of its own."""
        if self.divides_weights:
            return self.zero.fp32_partitioned_groups_flat
        found = getattr(self.zero, "single_partition_of_fp32_groups", None)
        return self.zero.fp32_groups_flat_partition if found is None else found

    def master_weights(self) -> dict[int, torch.Tensor]:
        """The whole float32 weights by number, on rank 0; called by all ranks."""
        return self._whole(None)

    def optimizer_state(self) -> dict[Any, Any]:
        """The whole state by number, as torch has it, on rank 0; called by all ranks.

        Moments in 8 bits come in blocks that span parameters: they stay as each rank has them, by
        rank under "ranks", and fit this division alone.
        """
        if self.world.agree(self._in_blocks()):
            own = [_on_cpu(self.state.get(flat, {})) for flat in self.flats]
            return {"ranks": self.world.gather(own)}
        return self._whole_state()

    def _in_blocks(self) -> bool:
        """Whether a tensor of the state is not laid out as the weights are."""
        return any(
            isinstance(value, torch.Tensor) and value.ndim and value.numel() != flat.numel()
            for flat in self.flats
            for value in self.state.get(flat, {}).values()
        )

    def _whole_state(self) -> dict[int, dict[str, torch.Tensor]]:
        kinds = [own for own in map(self._state_of, self.parameters) if own]
        found = self.world.gather({k: v.ndim for own in kinds[:1] for k, v in own.items()})
        names = next((names for names in found if names), {})
        out: dict[int, dict[str, torch.Tensor]] = {}
        for name, dimensions in sorted(names.items()):
            if dimensions:
                for i, whole in self._whole(name).items():
                    out.setdefault(i, {})[name] = whole
            else:  # the number of updates, the same everywhere
                for i in range(len(self.parameters) if kinds else 0):
                    out.setdefault(i, {})[name] = kinds[0][name].detach().cpu().clone()
        return {i: out[i] for i in sorted(out)}

    def _state_of(self, parameter: Any) -> dict[str, torch.Tensor]:
        part = self.part(parameter)
        own = {} if part is None else self.state.get(part.flat, {})
        return {name: value for name, value in own.items() if isinstance(value, torch.Tensor)}

    def _whole(self, name: str | None) -> dict[int, torch.Tensor]:
        """Master weights, or one tensor of the optimizer's state, put together on rank 0."""
        out: dict[int, torch.Tensor] = {}
        for i, parameter in enumerate(self.parameters):
            size, shape = _numel(parameter), _shape(parameter)
            whole = torch.zeros(size, dtype=torch.float32, device=self.device)
            part = self.part(parameter)
            if part is not None:
                own = part.flat if name is None else self.state[part.flat][name]
                whole.narrow(0, part.start, part.count).copy_(part.of(own).detach())
            dist.reduce(whole, dst=0)
            if self.world.is_first:
                out[i] = whole.view(shape).cpu()
        return out

    @torch.no_grad()
    def set_master(self, parameter: Any, whole: torch.Tensor) -> None:
        """Take this rank's part of whole float32 weights."""
        part = self.part(parameter)
        if part is not None:
            part.of(part.flat.data).copy_(part.cut(whole))

    @torch.no_grad()
    def set_divided(self, parameter: Any, whole: torch.Tensor) -> None:
        """Take this rank's part of whole weights in the model's own precision (stage 3)."""
        start = self.world.rank * parameter.ds_tensor.ds_numel
        count = max(0, min(parameter.ds_tensor.ds_numel, parameter.ds_numel - start))
        own = whole.flatten().narrow(0, min(start, parameter.ds_numel), count)
        parameter.ds_tensor.data.narrow(0, 0, count).copy_(own)
        if parameter.data.numel() == parameter.ds_numel:  # small ones may stay whole everywhere
            parameter.data.copy_(whole.view_as(parameter.data))

    @torch.no_grad()
    def load_optimizer_state(self, state: Mapping[Any, Any]) -> None:
        """Take this rank's parts of what `optimizer_state` returned, or torch itself."""
        self.state.clear()
        if "ranks" in state:
            for flat, own in zip(self.flats, state["ranks"][self.world.rank], strict=True):
                self.state[flat] = {name: _like(value, flat) for name, value in own.items()}
            return
        for i, parameter in enumerate(self.parameters):
            part, whole = self.part(parameter), state.get(i, {})
            if part is None:
                continue
            for name, value in whole.items():
                if not isinstance(value, torch.Tensor):
                    continue
                own = self.state[part.flat]
                if value.ndim == 0:
                    own[name] = value.clone()
                    continue
                if name not in own:
                    own[name] = torch.zeros_like(part.flat.data)
                part.of(own[name]).copy_(part.cut(value))


def _on_cpu(state: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v.cpu() if isinstance(v, torch.Tensor) else v for k, v in state.items()}


def _like(value: Any, flat: torch.Tensor) -> Any:
    return value.to(flat.device, copy=True) if isinstance(value, torch.Tensor) else value


def _numel(parameter: Any) -> int:
    return int(getattr(parameter, "ds_numel", parameter.numel()))


def _shape(parameter: Any) -> tuple[int, ...]:
    return tuple(getattr(parameter, "ds_shape", parameter.shape))
