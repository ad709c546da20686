"""Settings that all environments with several turns share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from selfdistill_cli.core.errors import FieldError
from selfdistill_cli.core.settings import Settings, in_range


@dataclass(frozen=True, kw_only=True)
class AgentSettings(Settings):
    """How an agent acts, and what it is told. An environment adds its own fields."""

    format: Literal["tags", "json", "native", "choices", "words"]
    """How actions are written: `<action>open 2</action>`, JSON, `<tool_call>` as in Qwen's
    template, the number of an admissible action, or the first words of one."""
    max_steps: int
    """Actions of one episode at most, invalid ones included."""
    max_observation: int
    """Characters of one observation at most; longer ones are cut in their middle."""
    instructions: str | None
    """System message put before every task, or null for none."""
    describe_tools: bool
    """Explain tools and format in the system message."""
    show_choices: bool
    """List the admissible actions below every observation, where the environment knows them."""

    def __post_init__(self) -> None:
        in_range(self, 1, 10_000, "max_steps")
        in_range(self, 16, 1_000_000, "max_observation")
        if self.picks and not self.show_choices:
            expected = f"true with format={self.format}: it picks from the list"
            raise FieldError("show_choices", "false", expected)

    @property
    def picks(self) -> bool:
        """Whether only listed actions can be written."""
        return self.format in ("choices", "words")
