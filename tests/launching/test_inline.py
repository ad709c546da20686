"""The inline launcher says how threads wait before torch is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]

CODE = """
import os, sys
from selfdistill_cli.launching.settings import InlineSettings

seen = {}

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            seen["policy"] = os.environ.get("OMP_WAIT_POLICY")
            raise ImportError("stop here")

sys.meta_path.insert(0, Watch())
try:
    InlineSettings(timeout_s=60.0, jobs=None).build().launch(None, {}, None)
except ImportError:
    print(seen["policy"])
"""


@pytest.mark.parametrize(
    ("given", "expected"), [({}, "passive"), ({"OMP_WAIT_POLICY": "active"}, "active")]
)
def test_threads_sleep_unless_the_user_says_otherwise(given: dict[str, str], expected: str) -> None:
    inherited = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    said = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**inherited, "PYTHONPATH": str(CHECKOUT), **given},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert said.stdout.strip() == expected
