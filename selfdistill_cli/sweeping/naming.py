"""Names of cells and sweeps: readable, the same for the same words, safe as names of folders."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

LONGEST = 100
DIGITS = 6
SPEAKING = ("method", "env", "policy", "experiment")
"""Groups whose options say enough without the group."""
RESERVED = ("logs", "jobs")
"""Folders in the directory of a sweep that are not of cells."""
PLAIN = re.compile(r"[A-Za-z0-9_.+]+|[+-]?[0-9.]+([eE][+-]?[0-9]+)?")
"""Values that stand in a name as they are."""


def cell_name(values: Mapping[str, str]) -> str:
    """`gear-lr_0.001-seed_1` for {"method": "gear", "optim.lr": "0.001", "seed": "1"}.

    Where a value cannot stand in a name as it is, or the name would be too long, a hash of all
    values ends it, so that no two cells share a name.
    """
    short = short_keys(list(values))
    parts: list[str] = []
    exact = True
    for key, text in values.items():
        word = safe(text)
        exact = exact and word == text and bool(PLAIN.fullmatch(text))
        parts.append(word if key in SPEAKING else f"{short[key]}_{word}")
    name = "-".join(parts).strip(".-") or "cell"
    if exact and len(name) <= LONGEST and name not in RESERVED:
        return name
    return f"{name[: LONGEST - DIGITS - 1]}-{digest(dict(values))}"


def sweep_name(keys: Sequence[str], identity: Any) -> str:
    """`method-seed-1a2b3c`: what is swept, and a hash of all that makes the sweep this one."""
    words = "-".join(short_keys(list(keys)).values())
    return f"{words[:60].strip('.-')}-{digest(identity)}"


def short_keys(keys: Sequence[str]) -> dict[str, str]:
    """The fewest last parts of each key that tell it from the others: `lr` for `optim.lr`."""
    parts = {key: [safe(p) for p in re.split(r"[./@+~]", key) if p] for key in keys}
    found: dict[str, str] = {}
    for key, own in parts.items():
        others = [other for k, other in parts.items() if k != key]
        needed = (n for n in range(1, len(own)) if all(o[-n:] != own[-n:] for o in others))
        found[key] = ".".join(own[-next(needed, len(own)) :])
    return found


def safe(text: str) -> str:
    """Only letters, digits and `_.+-`, no quotes around it, at most 40 characters."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1]
    word = re.sub(r"[^A-Za-z0-9_.+-]+", "_", text)
    return word[:40].strip("_") or "x"


def digest(value: Any) -> str:
    """Six hex digits of a JSON value."""
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def unused(name: str, values: Mapping[str, str], taken: Iterable[str]) -> str:
    """The name, or one with a hash if another cell has it."""
    return name if name not in taken else f"{name[:LONGEST - DIGITS - 1]}-{digest(dict(values))}"
