"""Policies from local folders in Hugging Face format. Nothing is ever downloaded."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.policies.settings import (
    HuggingFaceSettings,
    TinyAgentSettings,
    TinySettings,
    shipped_agents,
)

if TYPE_CHECKING:
    from selfdistill_cli.policies.causal import CausalPolicy

WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin")
EXPECTED = "expected a folder with config.json, weights (*.safetensors) and a tokenizer"
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")


def HuggingFacePolicy(settings: HuggingFaceSettings) -> CausalPolicy:
    """Build the policy of `policy=hf`; raises ConfigError."""
    if settings.quantization != "none" and settings.lora.rank == 0:
        raise ConfigError(
            f"policy.quantization: got {settings.quantization}, but quantized weights cannot be "
            "trained themselves; add adapters with policy.lora.rank=16, or use "
            "policy.quantization=none"
        )
    template = read_template(settings.chat_template)
    policy = load_policy(
        Path(settings.path),
        dtype=settings.dtype,
        attn_implementation=settings.attn_implementation,
        chat_template=template,
        quantization=settings.quantization,
    )
    model = policy.backbone
    if settings.gradient_checkpointing:
        # transformers 5.24 renames this method.
        old = getattr(model, "gradient_checkpointing_enable", None)
        enable = getattr(model, "activation_checkpointing_enable", old)
        enable({"use_reentrant": False})
    if settings.lora.rank > 0:
        from selfdistill_cli.policies.lora import add_adapter

        policy.backbone = add_adapter(model, settings.lora)
    return policy


def TinyPolicy(settings: TinySettings) -> CausalPolicy:
    """Build the policy of `policy=tiny`: shipped weights, a folder's, or new random ones."""
    path = shipped_tiny() if settings.path is None else Path(settings.path)
    return _new_policy(settings, path) if settings.from_scratch else load_policy(path)


def TinyAgentPolicy(settings: TinyAgentSettings) -> CausalPolicy:
    """Build the policy of `policy=tiny_agent`: as TinyPolicy, with an environment's weights."""
    if settings.path is not None:
        return TinyPolicy(settings)
    if settings.from_scratch:
        return _new_policy(settings, shipped_agents())
    assert settings.weights is not None
    return load_policy(shipped_agents() / settings.weights, tokenizer_path=shipped_agents())


def _new_policy(settings: TinySettings, path: Path) -> CausalPolicy:
    """Return random weights of the settings' shape for the tokenizer in `path`."""
    from transformers import AutoTokenizer

    from selfdistill_cli.policies.causal import CausalPolicy
    from selfdistill_cli.policies.chat import TemplateChat
    from selfdistill_cli.policies.tiny import build_model

    _check_is_folder(path)
    tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    model = build_model(
        tokenizer,
        hidden_size=settings.hidden_size,
        num_layers=settings.num_layers,
        num_heads=settings.num_heads,
        intermediate_size=settings.intermediate_size,
        max_length=settings.max_length,
        seed=settings.weights_seed,
    )
    return CausalPolicy(model, TemplateChat(tokenizer, generation_stops(model)))


def shipped_tiny() -> Path:
    """Folder of the tiny policy's weights inside the package."""
    return Path(str(resources.files("selfdistill_cli.policies") / "weights" / "tiny"))


def check_folder(path: Path) -> None:
    """Raise ConfigError unless `path` looks like a model in Hugging Face format."""
    _check_is_folder(path)
    names = sorted(entry.name for entry in path.iterdir())
    if "config.json" not in names and "adapter_config.json" in names:
        raise ConfigError(
            f"policy.path={path}: found an adapter without its base model; {EXPECTED}. Give the "
            "base model's folder as policy.path and the adapter as policy.init_from."
        )
    missing = [] if "config.json" in names else ["config.json"]
    if not any(entry for pattern in WEIGHTS for entry in path.glob(pattern)):
        missing.append("weights")
    if not set(TOKENIZERS) & set(names):
        missing.append("tokenizer")
    if missing:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        shown = ", ".join(name[:40] for name in names[:3]) + more or "an empty folder"
        raise ConfigError(
            f"policy.path={path}: no {' and no '.join(missing)} (found {shown}); {EXPECTED}"
        )
    _check_architecture(path)


def read_template(choice: str | None) -> str | None:
    """Return the Jinja text that `policy.chat_template` names, or None for the tokenizer's own."""
    if choice is None:
        return None
    if choice == "plain":
        return (resources.files("selfdistill_cli.policies") / "templates/plain.jinja").read_text()
    path = Path(choice)
    if not path.is_file():
        raise ConfigError(
            f"policy.chat_template={choice}: there is no such file; expected null (the "
            "tokenizer's own), `plain`, or a Jinja file"
        )
    return path.read_text()


def load_policy(
    path: Path,
    *,
    tokenizer_path: Path | None = None,
    dtype: str = "float32",
    attn_implementation: str = "sdpa",
    chat_template: str | None = None,
    quantization: str = "none",
) -> CausalPolicy:
    """Load a model and its tokenizer from a local folder, with dropout switched off.

    `tokenizer_path` is the tokenizer's folder where it is not the model's.
    Dropout is off because the ratio and every divergence compare the same weights at sampling and
    at the update: with it, they would differ at equal weights.
    """
    if tokenizer_path is None:
        check_folder(path)
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from selfdistill_cli.policies.causal import CausalPolicy
    from selfdistill_cli.policies.chat import TemplateChat

    more: dict[str, Any] = {}
    if quantization != "none":
        from selfdistill_cli.policies.quantization import quantization_config

        more["quantization_config"] = quantization_config(quantization, getattr(torch, dtype))
    try:
        tokenizer = AutoTokenizer.from_pretrained(tokenizer_path or path, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=getattr(torch, dtype),
            attn_implementation=attn_implementation,
            local_files_only=True,
            **more,
        )
    except (ValueError, ImportError, OSError, KeyError) as error:
        raise ConfigError(
            f"policy.path={path}: the folder cannot be loaded as a causal language model: {error}"
        ) from error
    if quantization != "none":
        from selfdistill_cli.policies.quantization import keep_gradients

        keep_gradients(model)
    _switch_dropout_off(model)
    if chat_template is not None:
        tokenizer.chat_template = chat_template
    return CausalPolicy(model, TemplateChat(tokenizer, generation_stops(model)))


def generation_stops(model: Any) -> list[int]:
    """End-of-sequence ids of the model's generation_config."""
    config = getattr(model, "generation_config", None)
    found = getattr(config, "eos_token_id", None)
    if found is None:
        return []
    return list(found) if isinstance(found, list | tuple) else [int(found)]


def _check_is_folder(path: Path) -> None:
    if not path.is_dir():
        found = "a file" if path.exists() else "nothing there"
        raise ConfigError(
            f"policy.path={path}: {found}; {EXPECTED}. Models are not downloaded: fetch one "
            "first and give its folder."
        )


def _check_architecture(path: Path) -> None:
    try:
        names = json.loads((path / "config.json").read_text()).get("architectures") or []
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"policy.path={path}: config.json is not valid JSON: {error}") from error
    if names and not any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in names):
        raise ConfigError(
            f"policy.path={path}: config.json says {', '.join(names)}; expected a causal language "
            "model (...ForCausalLM)"
        )


def _switch_dropout_off(model: Any) -> None:
    from torch import nn

    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if hasattr(module, "attention_dropout") and isinstance(module.attention_dropout, float):
            module.attention_dropout = 0.0
