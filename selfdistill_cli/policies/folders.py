"""A policy's folder in Hugging Face format: what it holds, how it is written and read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from selfdistill_cli.core.errors import CheckpointError

VALUE_HEAD_FILE = "value_head.safetensors"
BACKBONE, VALUE_HEAD = "backbone.", "value_head."
"""Prefixes in the names of what a folder holds."""


def held(backbone: Any, value_head: nn.Module | None) -> dict[str, torch.Tensor]:
    """The tensors of a folder as they are now: all weights and saved buffers, or adapters alone."""
    if hasattr(backbone, "peft_config"):
        from selfdistill_cli.policies.lora import adapter_tensors

        weights = adapter_tensors(backbone)
    else:
        weights = backbone.state_dict()
    head = {} if value_head is None else value_head.state_dict()
    return {
        **{BACKBONE + name: tensor for name, tensor in weights.items()},
        **{VALUE_HEAD + name: tensor for name, tensor in head.items()},
    }


def write(directory: Path, backbone: Any, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write what `held` returned, or a copy of it, and the settings of the backbone."""
    backbone.save_pretrained(directory, state_dict=_under(BACKBONE, tensors))
    head = {name: x.contiguous() for name, x in _under(VALUE_HEAD, tensors).items()}
    if head:
        save_file(head, directory / VALUE_HEAD_FILE)


def _under(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {n.removeprefix(prefix): x for n, x in tensors.items() if n.startswith(prefix)}


def load_full(backbone: Any, directory: Path) -> None:
    """Read all weights of a folder; raises CheckpointError if they do not fit."""
    if not (directory / "config.json").is_file():
        raise CheckpointError(
            f"{directory}: has no config.json; expected a model folder in Hugging Face format"
        )
    dtype = next(backbone.parameters()).dtype
    loaded = type(backbone).from_pretrained(directory, dtype=dtype, local_files_only=True)
    theirs, ours = loaded.state_dict(), backbone.state_dict()
    wrong = sorted(
        name
        for name in theirs.keys() | ours.keys()
        if name not in theirs or name not in ours or theirs[name].shape != ours[name].shape
    )
    if wrong:
        raise CheckpointError(
            f"{directory}: weights do not fit the policy; {len(wrong)} differ, for example "
            f"{wrong[0]}. Use the policy settings that the folder was trained with."
        )
    backbone.load_state_dict(theirs)
