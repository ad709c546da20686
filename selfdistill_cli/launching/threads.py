"""How the threads of torch wait; must be said before torch is imported."""

from __future__ import annotations

import os


def sleep_while_waiting() -> None:
    """Let OpenMP threads sleep instead of spin while they wait, unless the user said otherwise.

    On a busy machine two spinning threads took 60 s for what two sleeping ones did in 13 s.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
