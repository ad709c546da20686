"""Low-rank adapters. The only module that imports peft."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from selfdistill_cli.core.errors import CheckpointError, ConfigError
from selfdistill_cli.policies.settings import LoraSettings

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_FILE = "adapter_model.safetensors"


def add_adapter(model: Any, settings: LoraSettings) -> Any:
    """Freeze `model` and return it with fresh adapters, whose output starts at zero."""
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise ConfigError(
            "policy.lora: the package peft is not installed; install selfdistill[lora], or set "
            "policy.lora=null"
        ) from error
    named = settings.target_modules
    head = [name for name, m in model.named_modules() if m is model.get_output_embeddings()]
    if isinstance(named, list) and set(named) & set(head):
        raise ConfigError(
            f"policy.lora.target_modules: {head[0]} is the unembedding, which cannot have an "
            "adapter; remove it from the list"
        )
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=named,
        task_type="CAUSAL_LM",
    )
    try:
        return get_peft_model(model, config)
    except ValueError as error:
        linear = sorted({n.split(".")[-1] for n, m in model.named_modules() if "proj" in n})
        raise ConfigError(
            f"policy.lora.target_modules={named}: {error}; this model has {', '.join(linear)}. "
            "Name some of them, or say all-linear."
        ) from error


def load_adapter(model: Any, directory: Path) -> None:
    """Read the adapters that `save_pretrained` wrote into an existing peft model."""
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file

    file = directory / ADAPTER_FILE
    if not file.is_file():
        raise CheckpointError(
            f"{directory}: has no {ADAPTER_FILE}; expected a checkpoint of a run with policy.lora"
        )
    report = set_peft_model_state_dict(model, load_file(file))
    if report.unexpected_keys:
        raise CheckpointError(
            f"{file}: holds {report.unexpected_keys[0]}, which the policy's adapters lack; use "
            "the policy.lora settings that it was trained with"
        )
