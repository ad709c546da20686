"""The numbers of a model that memory depends on, without its weights.

The modules are made on torch's `meta` device, which has shapes and no data, from config.json or
from the settings of the embedded policy; adapters are put on them as a run would.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.policies.huggingface import shipped_tiny
from selfdistill_cli.policies.lora import add_adapter
from selfdistill_cli.policies.settings import HuggingFaceSettings, TinySettings
from selfdistill_cli.policies.tiny import build_model

QUANTIZED_BYTES = {"nf4": 0.5 + 1 / 64 + 4 / (64 * 256) + 4 / (64 * 256), "int8": 1.0}
"""Bytes of a quantized entry: nf4 has one byte of scale for 64 entries, and two float32 numbers
for 256 of these (arXiv 2305.14314, section 3); int8 one scale for a row, which is left out."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A model with its adapters, as numbers. All sizes are entries unless they say bytes."""

    trained: int
    """Parameters that get gradients."""
    trained_bytes: int
    """Their weights; adapters over bfloat16 are float32."""
    frozen: int
    """Parameters under adapters."""
    frozen_bytes: int
    """Their weights, quantized or not."""
    largest_trained: int
    """Entries of the largest trained tensor."""
    largest_layer_bytes: int
    """Weights of one block."""
    adapted: int
    """Entries of the matrices that have adapters: what a dense average of products takes."""
    adapter_inputs: int
    """Widths of the inputs of all adapters of one block, summed."""
    num_adapters: int
    """Adapters of one block."""
    rank: int
    """Rank of the adapters, 0 without."""
    head_is_trained: bool
    """Whether the unembedding gets gradients."""
    element_size: int
    """Bytes of an activation."""
    num_layers: int
    hidden: int
    query: int
    """Width of all query heads."""
    key: int
    """Width of all key heads; values are as wide."""
    intermediate: int
    """Width of the feed-forward layer."""
    gated: bool
    """Whether the feed-forward layer has a gate."""
    norms: int
    """Widths of all norms of one block, summed."""
    root_mean_square: bool
    """Norms of Llama and its kin, computed in float32, rather than LayerNorm."""
    heads: int
    vocabulary: int
    has_fast_decoder: bool
    """Whether a CPU decodes it from joined weights (policies/fast_llama.py)."""
    sdpa: bool
    """Attention without a matrix of length x length."""

    @property
    def weights_bytes(self) -> int:
        """All weights, as one rank without division holds them."""
        return self.trained_bytes + self.frozen_bytes

    @property
    def parameters(self) -> int:
        """Trained and frozen."""
        return self.trained + self.frozen


def read_shape(policy: Any) -> Shape:
    """The shape of the student that settings of the group `policy` describe; raises ConfigError."""
    if isinstance(policy, TinySettings):
        return _of_model(_tiny(policy), "none", 0)
    if isinstance(policy, HuggingFaceSettings):
        model = _empty(Path(policy.path), getattr(torch, policy.dtype), policy.attn_implementation)
        rank = policy.lora.rank
        if rank > 0:
            with torch.device("meta"):
                model = add_adapter(model, policy.lora)
        return _of_model(model, policy.quantization, rank)
    raise ConfigError(
        f"policy: plan knows policy=tiny and policy=hf, got {type(policy).__name__}; describe it "
        "with policy=hf policy.path=FOLDER, which needs no more than a config.json"
    )


def folder_bytes(path: Path, dtype: torch.dtype) -> int:
    """Weights of the model of a folder with config.json; raises ConfigError."""
    return sum(p.numel() * p.element_size() for p in _empty(path, dtype, "sdpa").parameters())


def _tiny(policy: TinySettings) -> Any:
    path = shipped_tiny() if policy.path is None else Path(policy.path)
    if not policy.from_scratch:
        return _empty(path, torch.float32, "sdpa")
    tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    with torch.device("meta"):
        return build_model(
            tokenizer,
            hidden_size=policy.hidden_size,
            num_layers=policy.num_layers,
            num_heads=policy.num_heads,
            intermediate_size=policy.intermediate_size,
            max_length=policy.max_length,
            seed=policy.weights_seed,
        )


def _empty(path: Path, dtype: torch.dtype, attention: str) -> Any:
    if not (path / "config.json").is_file():
        raise ConfigError(
            f"policy.path={path}: plan found no config.json there; expected the folder of a model "
            "(its weights are not needed)"
        )
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True)
        # The kernel does not change a shape, and a missing package should not stop a plan.
        known = "eager" if attention == "eager" else "sdpa"
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=known)
    except (ValueError, KeyError, OSError, ImportError) as error:
        raise ConfigError(
            f"policy.path={path}: config.json does not describe a causal language model: {error}"
        ) from error


def _of_model(model: Any, quantization: str, rank: int) -> Shape:
    language = model.get_base_model() if hasattr(model, "get_base_model") else model
    config = language.config.get_text_config()
    trained = [p for p in model.parameters() if p.requires_grad]
    frozen = [(n, p) for n, p in model.named_parameters() if not p.requires_grad]
    block = _first_block(language)
    adapters = {n: m for n, m in block.named_modules() if hasattr(m, "lora_A")}
    everywhere = [m for m in language.modules() if hasattr(m, "lora_A")]
    size, heads = int(config.hidden_size), int(config.num_attention_heads)
    width = int(getattr(config, "head_dim", None) or size // heads)
    groups = int(getattr(config, "num_key_value_heads", None) or heads)
    head = language.get_output_embeddings().weight
    names = {name.split(".")[-1] for name, _ in block.named_modules()}
    inner = getattr(config, "intermediate_size", None) or getattr(config, "n_inner", None)
    query, key = heads * width, groups * width
    return Shape(
        trained=sum(p.numel() for p in trained),
        trained_bytes=sum(p.numel() * p.element_size() for p in trained),
        frozen=sum(p.numel() for _, p in frozen),
        frozen_bytes=int(sum(_frozen_bytes(n, p, quantization) for n, p in frozen)),
        largest_trained=max(p.numel() for p in trained),
        largest_layer_bytes=sum(p.numel() * p.element_size() for p in block.parameters()),
        adapted=sum(m.get_base_layer().weight.numel() for m in everywhere),
        adapter_inputs=sum(m.in_features for m in adapters.values()),
        num_adapters=len(adapters),
        rank=rank,
        head_is_trained=head.requires_grad,
        element_size=head.element_size(),
        num_layers=int(config.num_hidden_layers),
        hidden=size,
        query=query,
        key=key,
        intermediate=int(inner or 4 * size),
        gated="gate_proj" in names or "gate_up_proj" in names,
        norms=2 * size + (query + key if "q_norm" in names else 0),
        root_mean_square=any("RMSNorm" in type(m).__name__ for m in block.modules()),
        heads=heads,
        vocabulary=int(head.shape[0]),
        has_fast_decoder=type(model).__name__ == "LlamaForCausalLM" and head.element_size() == 4,
        sdpa=config._attn_implementation != "eager",
    )


def _first_block(language: Any) -> Any:
    lists = [m for m in language.modules() if isinstance(m, torch.nn.ModuleList) and len(m)]
    return lists[0][0]


def _frozen_bytes(name: str, parameter: Any, quantization: str) -> float:
    """Linear layers of the blocks are quantized; embeddings, norms and the unembedding are not."""
    is_matrix = parameter.ndim == 2 and ".base_layer." in name
    if quantization != "none" and is_matrix:
        return parameter.numel() * QUANTIZED_BYTES[quantization]
    return parameter.numel() * parameter.element_size()
