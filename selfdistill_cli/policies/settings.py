"""Settings of policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from selfdistill_cli.core.settings import Settings


@dataclass(frozen=True, kw_only=True)
class LoraSettings(Settings):
    """Low-rank adapters: the base stays frozen, only the adapters are trained and saved."""

    implementation: ClassVar[str] = ""

    rank: int
    """Rank of the adapters; 0 = no adapters."""
    alpha: float
    """Scale of the adapters' output: alpha / rank."""
    dropout: float
    """Dropout on the adapters' input; above 0 the importance ratio is noisy at equal weights."""
    target_modules: list[str] | str
    """Names of the linear layers that get an adapter, or `all-linear`."""


@dataclass(frozen=True, kw_only=True)
class TinySettings(Settings):
    """The embedded policy: a Llama-style model of half a million to a few million parameters."""

    implementation: ClassVar[str] = "selfdistill_cli.policies.huggingface:TinyPolicy"

    path: str | None
    """Folder of the model in Hugging Face format; null = the weights shipped in the package."""
    init_from: str | None
    """Run directory or checkpoint whose weights the run starts from, or null."""
    from_scratch: bool
    """Keep only the folder's tokenizer and draw new weights: the start of the warm-up."""
    hidden_size: int
    """Width of the residual stream (read if from_scratch, like all that follow)."""
    num_layers: int
    """Transformer blocks."""
    num_heads: int
    """Attention heads."""
    intermediate_size: int
    """Width of the feed-forward layers."""
    max_length: int
    """Positions that the model is built for."""
    weights_seed: int
    """Seed of the new weights."""


@dataclass(frozen=True, kw_only=True)
class HuggingFaceSettings(Settings):
    """Any local Hugging Face causal language model."""

    implementation: ClassVar[str] = "selfdistill_cli.policies.huggingface:HuggingFacePolicy"

    path: str
    """Folder with config.json, *.safetensors and the tokenizer's files; nothing is downloaded."""
    init_from: str | None
    """Run directory or checkpoint whose weights the run starts from, or null."""
    dtype: Literal["float32", "bfloat16"]
    """Precision of the weights; the critic's head is always float32."""
    attn_implementation: Literal["sdpa", "eager", "flash_attention_2"]
    """Attention kernel; flash_attention_2 needs its package and a GPU."""
    gradient_checkpointing: bool
    """Recompute activations in the backward pass: less memory, about a third more time."""
    quantization: Literal["none", "nf4", "int8"]
    """Keep the frozen linear layers under adapters in 4 or 8 bits (QLoRA); needs bitsandbytes."""
    chat_template: str | None
    """null = the tokenizer's own; `plain` = the shipped one for base models; or a Jinja file."""
    lora: LoraSettings
    """Train adapters instead of all weights; rank 0 trains all weights."""
