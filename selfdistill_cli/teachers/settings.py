"""Settings of the group `teacher`: it fills the view named `teacher`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from selfdistill_cli.core.settings import Settings, ViewSettings


@dataclass(frozen=True, kw_only=True)
class NoTeacherSettings(Settings):
    """No teacher: no view named `teacher` exists."""

    implementation: ClassVar[str] = ""


@dataclass(frozen=True, kw_only=True)
class TeacherSettings(ViewSettings):
    """A teacher: the view named `teacher`."""

    implementation: ClassVar[str] = ""
