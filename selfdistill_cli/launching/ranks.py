"""One rank of several: joins the job, trains, and lets the error that came first be seen first."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from selfdistill_cli.core.errors import ConfigError, LostRank
from selfdistill_cli.training.settings import TrainSettings

NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

LOST = 3
"""Exit code by which a rank of `launcher=local` says that it only lost another one."""

PATIENCE_S = 10.0
"""How long a rank that lost another one waits before it tells so: whoever started the ranks has
shown the first error by then, and has ended this one."""


def is_one_of_several() -> bool:
    """Whether torchrun, deepspeed or `launcher=local` started this process as one of several."""
    return os.environ.get("WORLD_SIZE", "1") not in ("", "1")


def train_as_rank(
    settings: TrainSettings, container: Mapping[str, Any], display: Any, timeout_s: float
) -> None:
    """Join the job that the environment describes and train. Raises what `run_training` raises."""
    missing = [name for name in NEEDED if not os.environ.get(name)]
    if missing:
        raise ConfigError(
            f"WORLD_SIZE={os.environ['WORLD_SIZE']}, but {', '.join(missing)} is not set; start "
            "the ranks with torchrun, deepspeed or launcher=local, or unset WORLD_SIZE"
        )
    import torch

    from selfdistill_cli.training.process_world import join
    from selfdistill_cli.training.start import run_training

    device: str = getattr(settings.zero, "device", "auto")
    cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    world = join("cuda" if cuda else "cpu", timeout_s)
    try:
        run_training(settings, container, display if world.is_first else Silent(), world)
    except LostRank:
        time.sleep(PATIENCE_S)
        raise
    except Exception as error:
        if _is_connection(error):
            time.sleep(PATIENCE_S)
            raise LostRank(f"rank {world.rank} lost the other ranks: {error}") from error
        if getattr(error, "known_to_all", False):
            world.part()  # rank 0 may still have something to put in order
        raise
    world.part()
    world.close()


def _is_connection(error: Exception) -> bool:
    """Whether torch.distributed says that another process is gone."""
    import torch.distributed as dist

    words = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")
    return isinstance(error, dist.DistError) or any(word in str(error) for word in words)


class Silent:
    """What the other ranks show of a run: nothing but messages, which their log keeps."""

    def start(self, info: Mapping[str, Any]) -> None:
        """Rank 0 says it."""

    def phase(self, name: str) -> None:
        """Rank 0 says it."""

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Rank 0 says it."""

    def message(self, text: str) -> None:
        """Write a line to this rank's log."""
        print(text, file=sys.stderr, flush=True)

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Rank 0 says it."""

    def close(self) -> None:
        """There is nothing to give back."""
