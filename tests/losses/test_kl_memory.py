"""Work over large vocabularies goes in chunks: the peak of a step is bounded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from allocations import peak_bytes
from kl_step import step

CHILD = Path(__file__).with_name("kl_step.py")
LIMIT = 1.5
"""Times the size that the logits would have in bfloat16."""


@pytest.mark.parametrize("kind", ["forward", "reverse", "jsd"])
def test_peak_of_a_small_kl_step(kind: str) -> None:
    """A tenth of the vocabulary and a quarter of the tokens, with chunks a fortieth as large."""
    vocabulary, tokens = 15_000, 1_024
    peak = peak_bytes(lambda: step(vocabulary, tokens, 8, kind, 40))
    assert peak < LIMIT / 3 * 2 * vocabulary * tokens, "leaves room for gradients of wide models"


@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_peak_of_the_kl_step_at_150_000_entries() -> None:
    """4,096 tokens: their logits would take 1.2 GB in bfloat16 and 2.5 GB in float32."""
    vocabulary, tokens = 150_000, 4_096
    command = [sys.executable, str(CHILD), str(vocabulary), str(tokens), "64", "jsd", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < LIMIT * 2 * vocabulary * tokens
