"""Settings of the environments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from selfdistill_cli.core.settings import Settings
from selfdistill_cli.sandbox.settings import SandboxSettings


@dataclass(frozen=True, kw_only=True)
class CodeEnvSettings(Settings):
    """Write a Python function that passes the task's tests."""

    implementation: ClassVar[str] = "selfdistill_cli.envs.code.env:CodeEnv"

    data: str | None
    """File of tasks (.jsonl or .jsonl.gz, fields as in HumanEval or MBPP); null: built in."""
    instructions: str | None
    """System message put before every task, or null for none."""
    validation_fraction: float
    """Share of `data` for validation, by a hash of the task id; unused where it names splits."""
    test_fraction: float
    """Share of `data` for the final test, chosen like the validation share."""
    sandbox: SandboxSettings
    """Where the programs run."""
