"""Lengths of time as people type them: `90`, `45m`, `3h50m`, `1d12h`."""

from __future__ import annotations

import re

from selfdistill_cli.core.errors import FieldError

EXPECTED = "a length of time such as 3h50m, 45m or 90s"
_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)([dhms])")


def seconds_of(duration: str | float) -> float:
    """Seconds of `3h50m`, of `90s`, or of a bare number of seconds; raises ValueError."""
    text = str(duration).strip().lower()
    if re.fullmatch(rf"({_PART.pattern})+", text):
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"got '{duration}', expected {EXPECTED}") from None


def positive_durations(settings: object, *names: str) -> None:
    """Raise FieldError unless each named field is None or a length of time above 0."""
    for name in names:
        duration = getattr(settings, name)
        try:
            fine = duration is None or 0 < seconds_of(duration) < float("inf")
        except ValueError:
            fine = False
        if not fine:
            raise FieldError(name, f"'{duration}'", EXPECTED)
