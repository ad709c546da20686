"""Settings of gymnasium-style environments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from selfdistill_cli.core.settings import in_range
from selfdistill_cli.envs.agents.settings import AgentSettings


@dataclass(frozen=True, kw_only=True)
class GymnasiumSettings(AgentSettings):
    """Any environment with `reset(seed=)` and `step(text)` whose observations are text."""

    implementation: ClassVar[str] = "selfdistill_cli.envs.gymnasium.env:GymnasiumEnv"

    id: str
    """`module:factory` (called with the arguments), or an id that gymnasium knows."""
    arguments: dict[str, Any]
    """Keyword arguments of the factory."""
    request: str
    """The user's words above the first observation."""
    success_reward: float | None
    """Solved if the rewards sum to at least this; null: `info["success"]` says it."""
    train_tasks: int
    """Seeds of the split train, from 0; the first quarter is the split demonstrations."""
    held_out_tasks: int
    """Seeds of validation, from 1,000,000, and as many of test, from 2,000,000."""

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range(self, 4, 1_000_000, "train_tasks")
        in_range(self, 1, 1_000_000, "held_out_tasks")
