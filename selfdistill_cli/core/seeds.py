"""Random streams keyed by what they are for, never by rank or by order of calls.

A stream that is a pure function of its key needs no state in a checkpoint: a resumed run
draws the same numbers, and so does a run on another number of processes.
"""

from __future__ import annotations

import hashlib

import numpy as np

Key = int | str


def seed_for(*key: Key) -> int:
    """Return a 63-bit seed for a key such as `(seed, "rollout", step, task_id, sibling)`."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in key)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def stream(*key: Key) -> np.random.Generator:
    """Return a numpy generator for a key."""
    return np.random.Generator(np.random.PCG64(seed_for(*key)))
