"""Weights on their way to an engine that reads folders: written a few tensors at a time."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from selfdistill_cli.core.disk import writing

TENSORS_AT_ONCE = 16
"""Tensors that are copied to the CPU before they are written."""
BACKBONE = "backbone."
ADAPTED = "base_model.model."

Named = tuple[str, torch.Tensor]


def has_adapters(policy: Any) -> bool:
    """Whether the policy trains adapters."""
    return hasattr(policy.backbone, "peft_config")


def base_weights(weights: Iterable[Named]) -> Iterator[Named]:
    """The language model's weights by their names in its checkpoints; adapters and critic not."""
    for name, tensor in weights:
        if name.startswith(BACKBONE) and ".lora_" not in name:
            plain = name.removeprefix(BACKBONE).removeprefix(ADAPTED)
            yield plain.replace(".base_layer.", "."), tensor


def adapter_weights(weights: Iterable[Named]) -> Iterator[Named]:
    """The adapters' factors by their names in an adapter's file."""
    for name, tensor in weights:
        if name.startswith(BACKBONE) and ".lora_" in name:
            yield name.removeprefix(BACKBONE).replace(".default.", "."), tensor


def write_model(folder: Path, policy: Any, weights: Iterable[Named]) -> None:
    """Write config.json and the base model's weights in shards; raises RunError."""
    with _fresh(folder):
        policy.language_model.config.save_pretrained(folder)
        places: dict[str, str] = {}
        for number, part in enumerate(_parts(base_weights(weights))):
            file = f"model-{number:05d}.safetensors"
            save_file(part, folder / file, metadata={"format": "pt"})
            places |= dict.fromkeys(part, file)
        index = {"metadata": {}, "weight_map": places}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def write_adapter(folder: Path, policy: Any, weights: Iterable[Named]) -> None:
    """Write the adapters as a folder of their own; raises RunError."""
    with _fresh(folder):
        policy.backbone.peft_config["default"].save_pretrained(folder)
        whole = {name: _on_cpu(tensor) for name, tensor in adapter_weights(weights)}
        save_file(whole, folder / "adapter_model.safetensors", metadata={"format": "pt"})


@contextlib.contextmanager
def _fresh(folder: Path) -> Generator[None, None, None]:
    """An empty folder; what cannot be written inside the block is a RunError."""
    with writing(folder, (SafetensorError,)):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        yield


def _parts(weights: Iterable[Named]) -> Iterator[dict[str, torch.Tensor]]:
    part: dict[str, torch.Tensor] = {}
    for name, tensor in weights:
        part[name] = _on_cpu(tensor)
        if len(part) == TENSORS_AT_ONCE:
            yield part
            part = {}
    if part:
        yield part


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().contiguous()
