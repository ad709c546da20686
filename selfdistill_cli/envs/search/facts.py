"""Entities with their facts: what pages are written from and questions are asked about."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FACTS_FILE = Path(__file__).parent / "data" / "facts.jsonl.gz"


@dataclass(frozen=True, kw_only=True)
class Entity:
    """A country or an element, real or made up."""

    name: str
    """Unique in its world."""
    kind: str
    """`country` or `element`."""
    part: str
    """The split whose questions may pass through it."""
    facts: Mapping[str, Any]
    """Texts and numbers by attribute; an attribute that is not known is not there."""
    borders: Mapping[str, float]
    """Kilometres by neighbour."""
    notes: Mapping[str, Mapping[str, str]]
    """What else its pages say: by section, then by heading."""


@cache
def real_world() -> tuple[Entity, ...]:
    """Return the shipped countries and elements."""
    lines = gzip.decompress(FACTS_FILE.read_bytes()).decode().splitlines()
    return tuple(Entity(**json.loads(line)) for line in lines)
