"""Settings of the environments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from selfdistill_cli.core.errors import UserError
from selfdistill_cli.core.settings import Settings, in_range
from selfdistill_cli.envs.splitting import check_shares
from selfdistill_cli.sandbox.settings import SandboxSettings


@dataclass(frozen=True, kw_only=True)
class CodeEnvSettings(Settings):
    """Write a Python function that passes the task's tests."""

    implementation: ClassVar[str] = "selfdistill_cli.envs.code.env:CodeEnv"

    data: str | None
    """File of tasks (.jsonl or .jsonl.gz), `humaneval`, or null for those that are built in."""
    instructions: str | None
    """System message put before every task, or null for none."""
    validation_fraction: float
    """Share of `data` for validation, by a hash of the task id; unused where it names splits."""
    test_fraction: float
    """Share of `data` for the final test, chosen like the validation share."""
    attempts: int
    """Answers per episode at most; after one that fails the agent sees why and tries again."""
    shown_failures: int
    """Messages of failed tests that are shown between attempts; 0: only how many passed."""
    sandbox: SandboxSettings
    """Where the programs run."""

    def __post_init__(self) -> None:
        check_shares(self)
        in_range(self, 1, 1000, "attempts")
        in_range(self, 0, 1000, "shown_failures")

    def problem_with_data(self) -> str | None:
        """Return why `data` cannot be read, found without reading it, or None."""
        from selfdistill_cli.envs.code.readers.named import TASKS, find

        if self.data is None:
            return None
        try:
            return TASKS.problem(find(self.data))
        except UserError as error:
            return str(error)
