"""Settings of the launchers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from selfdistill_cli.core.settings import Settings


@dataclass(frozen=True, kw_only=True)
class InlineSettings(Settings):
    """`launcher=inline`: one process, the one that the command was given in."""

    implementation: ClassVar[str] = "selfdistill_cli.launching.inline:Inline"
