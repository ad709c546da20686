"""Which metrics docs/metrics.md does not explain."""

from __future__ import annotations

import re
from collections.abc import Iterable

ROW = re.compile(r"^\| *`([^`]+)` *\| *[^|\s]", re.MULTILINE)


def undocumented(keys: Iterable[str], text: str) -> list[str]:
    """Return the keys that no table row explains; `<name>` in a row stands for one word."""
    documented = [_pattern(row) for row in ROW.findall(text)]
    rest = (key for key in set(keys) - {"step"} if not any(p.fullmatch(key) for p in documented))
    return sorted(rest)


def _pattern(row: str) -> re.Pattern[str]:
    parts = re.split(r"<\w+>", row)
    return re.compile(r"[^/]+".join(re.escape(part) for part in parts))
