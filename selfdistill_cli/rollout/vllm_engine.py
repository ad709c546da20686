"""`rollout=vllm`: an engine in this process, or servers."""

from __future__ import annotations

from typing import Any

from selfdistill_cli.rollout.copied_weights import CopiedPolicy, Ranks
from selfdistill_cli.rollout.settings import VllmSettings


def VllmRollout(settings: VllmSettings, policy: CopiedPolicy, world: Ranks) -> Any:
    """Build the engine that `rollout.url` asks for; raises ConfigError, ServerError."""
    if settings.urls:
        from selfdistill_cli.rollout.vllm_server import ServedRollout

        return ServedRollout(settings, policy, world)
    from selfdistill_cli.rollout.vllm_colocated import ColocatedRollout

    return ColocatedRollout(settings, policy, world)
