"""Settings of the environments of verifiers."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

from selfdistill_cli.core.settings import Settings, in_range
from selfdistill_cli.envs.splitting import check_shares


@dataclass(frozen=True, kw_only=True)
class VerifiersSettings(Settings):
    """An environment of the package verifiers: its tasks, its turns, its rubric."""

    implementation: ClassVar[str] = "selfdistill_cli.envs.verifiers.env:VerifiersEnv"

    name: str
    """What `verifiers.load_environment` takes: the name of an installed environment, or a module
    in the current folder with a function `load_environment`."""
    arguments: dict[str, Any]
    """Keyword arguments of its `load_environment`."""
    success_reward: float
    """Solved if the rubric's reward is at least this."""
    num_tasks: int | None
    """Rows of its data that are used at most, the first ones; null: all."""
    validation_fraction: float
    """Share for validation, by a hash of the row; of its evaluation data where it has its own."""
    test_fraction: float
    """Share for the final test, chosen like the validation share."""

    def __post_init__(self) -> None:
        check_shares(self)
        in_range(self, 1, inf, "num_tasks")
