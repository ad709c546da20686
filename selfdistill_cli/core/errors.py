"""Errors, sorted by who can mend them; each one carries a message that says how."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SelfDistillError(Exception):
    """Base of every error that this project raises on purpose."""

    exit_code = 1
    known_to_all = False
    """Every rank of the run raises it: rank 0 tells it, and nobody waits for anybody."""


class UserError(SelfDistillError, ValueError):
    """The user's input was wrong: exit code 2, message without a traceback."""

    exit_code = 2


class ConfigError(UserError):
    """A key, value, group or combination in the configuration is wrong."""


class FieldError(ValueError):
    """A field of a settings class has a value outside its range; `field` names it."""

    def __init__(self, field: str, found: object, expected: str):
        super().__init__(f"got {found}, expected {expected}")
        self.field = field


class DataError(UserError):
    """A file that the user named cannot be used; names file, line and field."""


class CheckpointError(UserError):
    """A checkpoint or run directory cannot be used; names the file."""


class RunError(SelfDistillError):
    """The run failed for a reason outside the user's configuration."""


class SandboxError(RunError):
    """Isolation could not be started or was lost: the run stops, it never falls back."""


class ServerError(RunError):
    """An inference server cannot be reached, fails, or answers what no such server answers."""


class Diverged(RunError):
    """The numbers of the run, which every rank has, say that it went wrong."""

    known_to_all = True


class LostRank(RunError):
    """Another process of the run ended or cannot be reached; its own error is the one to read."""


class Preempted(SelfDistillError):
    """Stopped on request after a checkpoint; the same command continues."""

    exit_code = 75
    known_to_all = True


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `"; did you mean 'x'?"` for the nearest known name, or an empty string."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""
