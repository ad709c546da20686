"""Settings of policies."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import ClassVar, Literal

from selfdistill_cli.core.errors import FieldError
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


def shipped_agents() -> Path:
    """Folder of the agents' tokenizer; one folder for each environment in it has the weights."""
    return Path(str(resources.files("selfdistill_cli.policies") / "weights" / "tiny_agent"))


def shipped_agent_names() -> list[str]:
    """The environments that agents' weights ship for."""
    return sorted(file.parent.name for file in shipped_agents().glob("*/config.json"))


@dataclass(frozen=True, kw_only=True)
class TinyAgentSettings(TinySettings):
    """The embedded agents: a small model with weights of its own for each environment."""

    implementation: ClassVar[str] = "selfdistill_cli.policies.huggingface:TinyAgentPolicy"

    weights: str | None
    """Environment whose shipped weights are loaded (read if path is null and from_scratch false);
    null = the one that `env=` chooses."""

    def __post_init__(self) -> None:
        """Refuse an environment that no weights ship for."""
        known = shipped_agent_names()
        if self.path is None and not self.from_scratch and self.weights not in known:
            raise FieldError(
                "weights",
                repr(self.weights),
                f"one of {', '.join(known)} (the environments that agents ship for); for another "
                "one use policy=tiny, or warm up an agent of your own with method=sft "
                "policy.from_scratch=true as experiment=warmup_agent_textgame does, and give "
                "its folder as policy.path",
            )


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
