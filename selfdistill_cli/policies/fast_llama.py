"""One-token steps of a small Llama on a CPU, with a third of the calls of the general forward.

At about a million parameters half of a decoding step is the cost of calling small operations, and
the attention kernel of torch is slow for one query. This module computes the same function with
fused projections and two batched products per layer. It serves the embedded policy; every other
model decodes through its own forward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional
from transformers import LlamaForCausalLM


def applies_to(model: Any) -> bool:
    """Whether `model` is a plain float32 Llama on the CPU, without adapters or biases."""
    if type(model) is not LlamaForCausalLM:
        return False
    config, weight = model.config, model.get_input_embeddings().weight
    return (
        weight.dtype == torch.float32
        and weight.device.type == "cpu"
        and config.hidden_act == "silu"
        and config.rope_parameters["rope_type"] == "default"
        and not (config.attention_bias or config.mlp_bias)
        and all(type(m) is torch.nn.Linear for m in _projections(model))
    )


def _projections(model: Any) -> list[Any]:
    return [m for name, m in model.named_modules() if name.endswith("_proj")]


@dataclass(frozen=True, kw_only=True)
class _Layer:
    """Weights of one block, joined, with the norms' own weights multiplied in."""

    qkv: torch.Tensor
    out: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


class FastLlama:
    """Steps rows whose prompts the general forward has read. B rows, G key-value heads, D size."""

    def __init__(self, model: Any, layers: Sequence[Any], capacity: int):
        """Take the weights as they are now and the keys and values of a filled cache's `layers`."""
        config = model.config
        self.embedding = model.model.embed_tokens.weight
        self.final_norm = model.model.norm.weight
        self.epsilon = config.rms_norm_eps
        self.size = model.model.layers[0].self_attn.head_dim
        self.num_heads = config.num_attention_heads
        self.num_groups = config.num_key_value_heads
        positions = torch.arange(config.max_position_embeddings)[None]
        cos, sin = model.model.rotary_emb(self.embedding, positions)
        half = self.size // 2
        self.cos = cos[0]
        self.sin = torch.cat([-sin[0, :, :half], sin[0, :, half:]], dim=-1)
        self.layers = [self._joined(layer) for layer in model.model.layers]
        self.capacity = capacity
        self.used = int(layers[0].keys.shape[2])
        self.keys = [self._room(layer.keys) for layer in layers]
        self.values = [self._room(layer.values) for layer in layers]

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Make row i a copy of old row `indices[i]`."""
        for kept in (self.keys, self.values):
            for i, old in enumerate(kept):
                kept[i] = self._room(old[:, :, : self.used], indices)

    def step(
        self, token_ids_B: torch.Tensor, mask_BK: torch.Tensor, positions_B: torch.Tensor
    ) -> torch.Tensor:
        """Read one token per row; return the last hidden states [B,H].

        `mask_BK` is additive and covers the K positions including the new one.
        """
        end = self.used + 1
        x_BH = self.embedding[token_ids_B]
        cos, sin = self.cos[positions_B][:, None], self.sin[positions_B][:, None]
        for layer, keys, values in zip(self.layers, self.keys, self.values, strict=True):
            mixed = self._attend(layer, x_BH, cos, sin, keys, values, mask_BK)
            x_BH = torch.addmm(x_BH, mixed, layer.out)
            gate, up = functional.linear(self._scaled(x_BH), layer.gate_up).chunk(2, dim=1)
            x_BH = torch.addmm(x_BH, functional.silu(gate).mul_(up), layer.down)
        self.used = end
        return self._scaled(x_BH) * self.final_norm

    def _scaled(self, x_BH: torch.Tensor) -> torch.Tensor:
        """Divide by the root of the mean square, the norm without its weight."""
        square = torch.linalg.vector_norm(x_BH, dim=1, keepdim=True).square_()
        return x_BH * square.div_(x_BH.shape[1]).add_(self.epsilon).rsqrt_()

    def _attend(
        self,
        layer: _Layer,
        x_BH: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        mask_BK: torch.Tensor,
    ) -> torch.Tensor:
        rows, heads, groups = x_BH.shape[0], self.num_heads, self.num_groups
        end = self.used + 1
        qkv = functional.linear(self._scaled(x_BH), layer.qkv)
        qkv = qkv.view(rows, heads + 2 * groups, self.size)
        turned, value = qkv[:, : heads + groups], qkv[:, heads + groups :]
        turned = torch.addcmul(turned * cos, turned.roll(self.size // 2, -1), sin)
        keys[:, :, self.used] = turned[:, heads:]
        values[:, :, self.used] = value
        query = turned[:, :heads].reshape(rows * groups, heads // groups, self.size)
        past_keys = keys[:, :, :end].flatten(0, 1)
        scores = torch.bmm(query, past_keys.transpose(1, 2)).view(rows, heads, end)
        weights = scores.add_(mask_BK[:, None]).softmax(-1)
        weights = weights.view(rows * groups, heads // groups, end)
        return torch.bmm(weights, values[:, :, :end].flatten(0, 1)).view(rows, -1)

    def _joined(self, layer: Any) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        query = attention.q_proj.weight * attention.scaling
        qkv = torch.cat([query, attention.k_proj.weight, attention.v_proj.weight])
        gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])
        return _Layer(
            qkv=qkv * layer.input_layernorm.weight,
            out=attention.o_proj.weight.t(),
            gate_up=gate_up * layer.post_attention_layernorm.weight,
            down=mlp.down_proj.weight.t(),
        )

    def _room(self, states: torch.Tensor, rows: torch.Tensor | None = None) -> torch.Tensor:
        states = states if rows is None else states[rows]
        buffer = states.new_empty(*states.shape[:2], self.capacity, states.shape[3])
        buffer[:, :, : states.shape[2]] = states
        return buffer
