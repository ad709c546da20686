"""DeepSpeed's configuration: a JSON of memory and communication keys, and what conf owns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.training.files import launch_folder
from selfdistill_cli.training.settings import ScheduleSettings

OWNED: dict[str, str] = {
    "train_batch_size": "batch.tasks_per_step",
    "train_micro_batch_size_per_gpu": "batch.micro_batch_rows",
    "gradient_accumulation_steps": "batch.mini_batches",
    "gradient_clipping": "optim.max_grad_norm",
    "optimizer": "optim",
    "scheduler": "optim.schedule",
    "bf16": "policy.dtype",
    "fp16": "policy.dtype",
    "data_types": "policy.dtype",
    "activation_checkpointing": "policy.gradient_checkpointing",
}
"""Keys of DeepSpeed that must not stand in the file, and the settings that own them."""

FOLDER = "deepspeed"


def shipped_folder() -> Path:
    """Where the files lie that `zero.config` names."""
    return launch_folder(FOLDER)


def find_config(name: str) -> Path:
    """The file that `zero.config` names; raises ConfigError if there is none."""
    for path in (Path(name), shipped_folder() / name):
        if path.is_file():
            return path
    known = ", ".join(sorted(path.name for path in shipped_folder().glob("*.json")))
    raise ConfigError(
        f"zero.config={name}: there is no such file; expected a path or one of {known}"
    )


def read_config(name: str) -> dict[str, Any]:
    """Read the file; raises ConfigError if it is no JSON object or says what conf owns."""
    path = find_config(name)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"zero.config={name}: {path} cannot be read as JSON: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("zero_optimization"), dict):
        raise ConfigError(
            f"zero.config={name}: {path} has no object 'zero_optimization'; expected DeepSpeed's "
            "memory and communication keys"
        )
    twice = [f"{key} (owned by {owner})" for key, owner in OWNED.items() if key in found]
    if twice:
        raise ConfigError(
            f"zero.config={name}: {path} sets {', '.join(twice)}; a number stands in one place, so "
            "delete it there and use the setting"
        )
    if found["zero_optimization"].get("stage") not in (1, 2, 3):
        raise ConfigError(
            f"zero.config={name}: {path} has zero_optimization.stage="
            f"{found['zero_optimization'].get('stage')}; expected 1, 2 or 3 (zero=off is without)"
        )
    return found


def merged(given: Mapping[str, Any], optim: ScheduleSettings, bf16: bool) -> dict[str, Any]:
    """The whole configuration: what was given and what conf owns.

    Micro-batches and their accumulation are counted by the loop: to DeepSpeed an update is one
    micro-batch per backward pass, and the loop says which is the last.
    """
    own: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": optim.max_grad_norm,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 10**9,
    }
    if bf16:
        own["bf16"] = {"enabled": True, "check_grad_overflow": True}
        own["data_types"] = {"grad_accum_dtype": "fp32"}
    return {**given, **own}
