"""A second set of weights on the student's own module: reference, slow copy, frozen teacher.

Only the trained tensors are kept, so over LoRA a copy costs as much as the adapters. Scoring under
the copy puts its tensors in the module's place and takes them out again; no second module exists.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from selfdistill_cli.losses.averaging import copy_, lerp_


class WeightCopy:
    """Implements `core.protocols.SlowCopy`.

    The average is kept in `dtype`: float32, because a bfloat16 average does not move at decay
    0.995. `backbone` is the student's module without the critic.
    """

    is_policy = True
    """Whether the copy can be saved as a policy of its own."""

    def __init__(self, backbone: nn.Module, dtype: torch.dtype | None = torch.float32):
        self.backbone = backbone
        self.dtype = dtype
        self.slow = {name: self._own(value) for name, value in self._student().items()}
        self.good: dict[str, torch.Tensor] | None = None

    def _own(self, value: torch.Tensor) -> torch.Tensor:
        wide = self.dtype if self.dtype is not None and value.is_floating_point() else value.dtype
        return value.detach().to(wide, copy=True)

    def _student(self) -> dict[str, torch.Tensor]:
        """What is followed: the student's live tensors that can change."""
        return self._in_module()

    def _in_module(self) -> dict[str, torch.Tensor]:
        """The module's trained parameters and saved buffers."""
        kept = self.backbone.state_dict().keys()
        buffers = {n: b for n, b in self.backbone.named_buffers() if n in kept}
        trained = {n: p for n, p in self.backbone.named_parameters() if p.requires_grad}
        return {**trained, **buffers}

    @torch.no_grad()
    def follow(self, decay: float) -> None:
        """slow = decay * slow + (1 - decay) * student, by name; integers are copied."""
        lerp_(self.slow, self._student(), decay)

    @torch.no_grad()
    def copy_student(self) -> None:
        """Become the student."""
        copy_(self.slow, self._student())

    @torch.no_grad()
    def distance(self) -> float:
        """Euclidean distance to the student over all floating-point tensors."""
        student = self._student()
        squares = [
            (student[name].to(slow.dtype) - slow).double().square().sum()
            for name, slow in self.slow.items()
            if slow.is_floating_point()
        ]
        return float(torch.stack(squares).sum().sqrt()) if squares else 0.0

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside the block the module computes with this copy; afterwards with the student again.

        Storage is exchanged, not written, so the student's bytes and optimizer are untouched.
        """
        with self.in_place_of(self.slow):
            yield

    def scoring(self) -> contextlib.AbstractContextManager[None]:
        """Inside the block an engine's `score_copy` computes with this copy."""
        return self.in_place()

    @contextlib.contextmanager
    def in_place_of(self, weights: Mapping[str, torch.Tensor]) -> Iterator[None]:
        """The same with other weights, such as those of `state_dict`."""
        module = {name: x for name, x in self._in_module().items() if name in weights}
        saved = {name: tensor.data for name, tensor in module.items()}
        try:
            for name, tensor in module.items():
                tensor.data = weights[name].to(tensor.device, tensor.dtype)
            yield
        finally:
            for name, tensor in module.items():
                tensor.data = saved[name]

    @torch.no_grad()
    def write_back(self) -> None:
        """Make the student's tensors equal to the copy."""
        for name, tensor in self._student().items():
            tensor.data.copy_(self.slow[name])

    @torch.no_grad()
    def without_adapters(self) -> WeightCopy:
        """Become the base model under the adapters: their second factors are 0. Returns itself.

        Not the same as the initial policy where a run starts from trained adapters.
        """
        for name, value in self.slow.items():
            if "lora_B" in name:
                value.zero_()
        return self

    def keep_good(self) -> None:
        """Remember the weights as they are now."""
        self.good = {name: value.clone() for name, value in self.slow.items()}

    def restore_good(self) -> bool:
        """Go back to the remembered weights; False if there are none."""
        if self.good is None:
            return False
        self.slow = {name: value.clone() for name, value in self.good.items()}
        return True

    def state_dict(self) -> dict[str, Any]:
        """The copy and what it remembers."""
        return {"slow": self.slow, "good": self.good}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        device = next(iter(self._student().values())).device
        self.slow = {name: value.to(device) for name, value in state["slow"].items()}
        good = state["good"]
        self.good = None if good is None else {n: value.to(device) for n, value in good.items()}


class AdapterProductCopy(WeightCopy):
    """Averages the product B A of every adapter instead of its factors: exact, and dense.

    The average of products is not the product of averages (76 % relative error in a random
    example), and it has full rank: it costs as much memory as the adapted matrices.
    """

    is_policy = False

    def _adapters(self) -> dict[str, Any]:
        return {
            name: module
            for name, module in self.backbone.named_modules()
            if hasattr(module, "lora_A") and getattr(module, "active_adapters", None)
        }

    def _student(self) -> dict[str, torch.Tensor]:
        return {
            name: sum_of_products(module).detach() for name, module in self._adapters().items()
        }

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside the block every adapted matrix holds base + average and the adapters are off."""
        saved: list[tuple[torch.Tensor, torch.Tensor]] = []
        try:
            for name, module in self._adapters().items():
                base = module.base_layer.weight
                saved.append((base, base.data))
                base.data = (base.data.float() + self.slow[name]).to(base.dtype)
                for adapter in module.active_adapters:
                    factor = module.lora_B[adapter].weight
                    saved.append((factor, factor.data))
                    factor.data = torch.zeros_like(factor.data)
            yield
        finally:
            for tensor, data in saved:
                tensor.data = data


def sum_of_products(module: Any) -> torch.Tensor:
    """What the active adapters of a peft layer add to its matrix, in float32 and in its layout."""
    products: list[torch.Tensor] = []
    for name in module.active_adapters:
        a, b = module.lora_A[name].weight.float(), module.lora_B[name].weight.float()
        products.append(module.scaling[name] * (b @ a))
    total = torch.stack(products).sum(0)
    return total.T if module.fan_in_fan_out else total  # GPT-2 keeps its matrices as [in, out]


class HeadCopy(WeightCopy):
    """A slow unembedding on the student's own trunk: two heads, one encoder.

    The trunk is shared, so only the head can lag: the teacher moves with every update of the
    trunk, and at the start both heads are equal and their divergence is 0.
    """

    is_policy = False

    def __init__(self, policy: Any, dtype: torch.dtype | None = torch.float32):
        self.policy = policy
        super().__init__(policy.backbone, dtype)

    def _student(self) -> dict[str, torch.Tensor]:
        weight, bias = self.policy.unembedding()
        return {"weight": weight, **({} if bias is None else {"bias": bias})}

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside the block the policy's logits come from this head."""
        dtype = self._student()["weight"].dtype
        bias = self.slow.get("bias")
        head = self.slow["weight"].to(dtype), None if bias is None else bias.to(dtype)
        self.policy.head_override = head
        try:
            yield
        finally:
            self.policy.head_override = None
