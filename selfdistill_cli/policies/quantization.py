"""Frozen weights in 4 or 8 bits under adapters (QLoRA), and AdamW with 8-bit state.

The only module that imports bitsandbytes. Sources: QLoRA (arXiv 2305.14314), 8-bit optimizers
(arXiv 2110.02861).
"""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Any

import torch

from selfdistill_cli.core.errors import ConfigError


def quantization_config(kind: str, dtype: torch.dtype) -> Any:
    """What transformers needs to load a model's linear layers in `nf4` or `int8`.

    `nf4` quantizes the scales too; products are computed in `dtype`. The unembedding, the
    embeddings and the norms stay as they are. Raises ConfigError where it cannot run.
    """
    require_bitsandbytes(f"policy.quantization={kind}", "policy.quantization=none")
    from transformers import BitsAndBytesConfig

    if kind == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )


def keep_gradients(model: Any) -> None:
    """Forbid the layout for sampling on CPUs, which a layer would keep while it is trained.

    Its product has no gradient: layers below would learn nothing, with no more than a warning.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


@torch.no_grad()
def write_out(quantized: Any, plain: Any) -> None:
    """Give a plain model the weights that a quantized one of the same layers computes with."""
    functional = importlib.import_module("bitsandbytes").functional
    modules = dict(plain.named_modules())
    for name, module in quantized.named_modules():
        weight = getattr(module, "weight", None)
        kind = type(weight).__name__
        if kind == "Params4bit":
            found = functional.dequantize_4bit(weight.data, weight.quant_state)
        elif kind == "Int8Params":
            scales = weight.SCB if weight.SCB is not None else module.state.SCB
            found = functional.int8_vectorwise_dequant(weight.data, scales)
        else:
            continue
        modules[name].weight.copy_(found)


def adamw_8bit(
    groups: list[dict[str, Any]], *, lr: float, betas: tuple[float, float], eps: float
) -> torch.optim.Optimizer:
    """AdamW whose two moments take one byte each (tensors below 4,096 entries keep four).

    Raises ConfigError where it cannot run.
    """
    library = require_bitsandbytes("optim=adamw_8bit", "optim=adamw")
    return library.optim.AdamW8bit(groups, lr=lr, betas=betas, eps=eps)


def require_bitsandbytes(key: str, instead: str) -> Any:
    """Import bitsandbytes and try it on this machine's device; return the module.

    Raises ConfigError that names the key, the device, the package and the remedy.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    remedy = f"install selfdistill[quant] where a build for this device exists, or use {instead}"
    try:
        library = importlib.import_module("bitsandbytes")
    except ImportError as error:
        raise ConfigError(
            f"{key}: needs the package bitsandbytes, which cannot be imported here (device "
            f"{device}): {error}; {remedy}"
        ) from error
    try:
        weight = torch.ones(64, 64, device=device)
        packed, state = library.functional.quantize_4bit(weight, quant_type="nf4", blocksize=64)
        library.functional.dequantize_4bit(packed, state)
    except Exception as error:  # it fails in many ways: a missing kernel, library or symbol
        version = importlib.metadata.version("bitsandbytes")
        raise ConfigError(
            f"{key}: bitsandbytes {version} is installed but does not run on device {device}: "
            f"{type(error).__name__}: {error}; {remedy}"
        ) from error
    return library
