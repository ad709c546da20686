"""Where a run's first weights come from: the policy's own, or another run's checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from selfdistill_cli.core.errors import CheckpointError, ConfigError, RunError, UserError
from selfdistill_cli.policies.causal import CausalPolicy
from selfdistill_cli.policies.lora import ADAPTER_CONFIG
from selfdistill_cli.training.checkpoints import TEACHER, Checkpoint, Checkpoints
from selfdistill_cli.training.files import checksum
from selfdistill_cli.training.run_directory import find_run
from selfdistill_cli.training.settings import CheckpointSettings
from selfdistill_cli.training.world import World

WEIGHTS = ("*.safetensors", "*.bin")
BESIDE_WEIGHTS = (
    "config.json", "generation_config.json", "tokenizer*", "special_tokens_map.json",
    "added_tokens.json", "vocab*", "merges.txt", "*.jinja",
)  # fmt: skip
"""What a policy reads of its model's folder again whenever a run continues."""


def find_checkpoint(directory: Path, which: str) -> Checkpoint:
    """Return a run's checkpoint: latest, best, or a step."""
    keep_all = CheckpointSettings(every=0, keep=1, best_metric="eval/success", background=False)
    return Checkpoints(directory / "checkpoints", keep_all).named(which)


def policy_folder(path: str, root: str, key: str) -> Path:
    """The folder of a policy: a folder itself, or RUN[:best|:latest|:STEP|:teacher]."""
    folder = Path(path)
    if (folder / "config.json").is_file() or (folder / ADAPTER_CONFIG).is_file():
        return folder
    try:
        return run_policy(path, root)
    except CheckpointError as error:  # there is such a run
        raise ConfigError(f"{key}={path}: {error}") from error
    except UserError as error:
        raise ConfigError(
            f"{key}={path}: no folder with config.json, and no run: {error}"
        ) from error


def run_policy(spec: str, root: str) -> Path:
    """The policy of `RUN[:best|:latest|:STEP|:teacher]`, default best where there is one.

    `teacher` is the slow copy as it was saved with the newest checkpoint.
    """
    name, _, which = spec.partition(":")
    directory = find_run(name, root)
    if which == "teacher":
        folder = find_checkpoint(directory, "latest").path / TEACHER
        if not folder.is_dir():
            raise CheckpointError(
                f"{directory}: its newest checkpoint has no teacher; expected a run whose method "
                "keeps a slow copy (method=step_kd, bidirectional, ...)"
            )
        return folder
    if not which:
        which = "best" if (directory / "checkpoints" / "best").exists() else "latest"
    return find_checkpoint(directory, which).policy


def initial_weights(policy: CausalPolicy, init_from: str | None, root: str) -> None:
    """Load `policy.init_from=RUN[:best|:latest|:STEP|:teacher]`, or a skill checkpoint's folder."""
    if init_from is not None:
        policy.load(policy_folder(init_from, root, "policy.init_from"))


def path_fingerprint(path: Path) -> str:
    """SHA-256 of a file, or over the weight files of a folder; of nothing if there is neither."""
    return checksum(path) if path.is_file() else weights_fingerprint(path)


def weights_fingerprint(folder: Path) -> str:
    """SHA-256 over the weight files of a policy's folder."""
    return _fingerprint(folder, WEIGHTS)


def base_fingerprint(folder: Path) -> str:
    """SHA-256 over weights, settings, tokenizer and templates of a model's folder."""
    return _fingerprint(folder, (*WEIGHTS, *BESIDE_WEIGHTS))


def _fingerprint(folder: Path, patterns: Sequence[str]) -> str:
    files = sorted({path for pattern in patterns for path in folder.glob(pattern)})
    return hashlib.sha256("".join(map(checksum, files)).encode()).hexdigest()


def check_same_weights(policy: CausalPolicy, world: World) -> None:
    """Raise RunError unless every rank starts from the same weights."""
    if world.size == 1:
        return
    found = world.gather(sum(float(tensor.double().sum()) for _, tensor in policy.weights()))
    other = [rank for rank, total in enumerate(found) if total != found[0]]
    if other:
        raise RunError(
            f"rank {other[0]} starts from other weights than rank 0: policy.path or "
            "policy.init_from holds something else on its machine; copy one folder to all machines"
        )
