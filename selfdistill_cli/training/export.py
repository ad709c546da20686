"""`selfdistill export`: a trained policy as a folder that transformers or peft load."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any, Literal

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.policies.causal import CausalPolicy
from selfdistill_cli.policies.lora import ADAPTER_CONFIG, merge_adapters
from selfdistill_cli.training.files import write_folder, write_json
from selfdistill_cli.training.initial import run_policy
from selfdistill_cli.training.settings import TrainSettings

Format = Literal["merged", "adapter"]


def export_policy(
    settings: TrainSettings, spec: str, root: str, out: Path, form: Format
) -> dict[str, Any]:
    """Write the policy of `spec`, RUN[:best|:latest|:STEP|:teacher], to the folder `out`.

    merged: one model with the adapters added to its weights (or all weights, without adapters);
    adapter: the adapters alone, for the base of the run. Returns what was written. Raises
    ConfigError, CheckpointError.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"OUT: {out} is there already; expected the name of a new folder")
    folder = run_policy(spec, root)
    has_adapters = (folder / ADAPTER_CONFIG).is_file()
    if form == "merged":
        policy = merged_policy(settings, folder)
        write_folder(out, policy.save)
    elif has_adapters:
        base = str(Path(settings.policy.path).resolve())  # pyright: ignore
        write_folder(out, lambda aside: _copy_adapter(folder, aside, base))
    else:
        raise ConfigError(
            f"format: got adapter, but {folder} has all weights of a model (policy.lora.rank=0); "
            "use format=merged"
        )
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    return {"from": str(folder), "format": form, "adapters": has_adapters, "bytes": size}


def merged_policy(settings: TrainSettings, folder: Path) -> CausalPolicy:
    """The policy of a folder without adapters and critic; it stops where the run's rollout did."""
    chosen: Any = settings.policy
    if getattr(chosen, "quantization", "none") != "none":
        plain = dataclasses.replace(chosen, quantization="none")
        policy: CausalPolicy = plain.build()
        from selfdistill_cli.policies.quantization import write_out

        write_out(chosen.build().backbone, policy.backbone)
    else:
        policy = chosen.build()
    policy.load_backbone(folder)
    policy.backbone = merge_adapters(policy.backbone)
    generation: Any = policy.backbone.generation_config
    generation.eos_token_id = sorted(policy.chat.stop_ids)
    generation.pad_token_id = policy.chat.pad_id
    return policy


def _copy_adapter(folder: Path, out: Path, base: str) -> None:
    shutil.copytree(folder, out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("value_head.*"))
    settings = json.loads((out / ADAPTER_CONFIG).read_text())
    write_json(out / ADAPTER_CONFIG, {**settings, "base_model_name_or_path": base})
