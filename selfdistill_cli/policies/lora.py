"""Low-rank adapters. The only module that imports peft."""

from __future__ import annotations

import json
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
        adapted = get_peft_model(model, config)
    except ValueError as error:
        linear = sorted({n.split(".")[-1] for n, m in model.named_modules() if "proj" in n})
        raise ConfigError(
            f"policy.lora.target_modules={named}: {error}; this model has {', '.join(linear)}. "
            "Name some of them, or say all-linear."
        ) from error
    _in_order(adapted.peft_config["default"])
    return adapted


def _in_order(config: Any) -> None:
    """peft keeps the layers' names as a set, which every process would write in another order."""
    if not isinstance(config.target_modules, str):
        config.target_modules = sorted(config.target_modules)


def adapter_tensors(model: Any) -> dict[str, Any]:
    """The adapters' factors as they are now, by their names in the model; nothing is copied."""
    return {name: parameter.detach() for name, parameter in _factors(model)}


def load_adapter(model: Any, directory: Path) -> None:
    """Read the adapters that `save_pretrained` wrote into an existing peft model.

    Raises CheckpointError unless rank, scale and adapted layers are those of the model.
    """
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file

    file = directory / ADAPTER_FILE
    if not file.is_file():
        raise CheckpointError(
            f"{directory}: has no {ADAPTER_FILE}; expected a checkpoint of a run with policy.lora"
        )
    _check_scale(model, directory)
    weights = load_file(file)
    expected = {name.replace(".default.", ".") for name, _ in _factors(model)}
    for name in sorted(expected ^ weights.keys()):
        found, lacks = (file, "the policy") if name in weights else ("the policy", file)
        raise CheckpointError(
            f"{file}: does not fit the policy's adapters: {found} has {name} and {lacks} does not; "
            "use the policy.lora settings that it was trained with"
        )
    set_peft_model_state_dict(model, weights)


def _factors(model: Any) -> list[tuple[str, Any]]:
    return [(name, p) for name, p in model.named_parameters() if ".lora_" in name]


def _check_scale(model: Any, directory: Path) -> None:
    """A wrong alpha would load without a word and make the policy another one."""
    file = directory / ADAPTER_CONFIG
    try:
        saved = json.loads(file.read_text())
        scale = {"rank": saved["r"], "alpha": saved["lora_alpha"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{file} cannot be read as the settings of adapters: {error}") from (
            error
        )
    for option in ("use_dora", "use_rslora", "rank_pattern", "alpha_pattern"):
        if saved.get(option):
            raise CheckpointError(
                f"{file}: sets {option}, which policy.lora cannot continue; expected plain LoRA. "
                "Merge it into its base with peft, and give the result as policy.path."
            )
    own = model.peft_config["default"]
    for name, mine in (("rank", own.r), ("alpha", own.lora_alpha)):
        if scale[name] != mine:
            raise CheckpointError(
                f"{file}: was trained with policy.lora.{name}={scale[name]:g}, and this run has "
                f"policy.lora.{name}={mine:g}; use policy.lora.{name}={scale[name]:g}"
            )


def merge_adapters(model: Any) -> Any:
    """Add the adapters to the weights and return the bare model; one without them as it is."""
    if not hasattr(model, "peft_config"):
        return model
    return model.merge_and_unload(safe_merge=True)
