"""Start sweeps in processes of their own and read what became of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from selfdistill_cli.analysis.ledger import Cell, Ledger

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
FAST = ("run.max_steps=5", "tracker=none", "sweep.grace_s=20")
"""For cells that do not train."""


def environment(**more: str) -> dict[str, str]:
    """Where the stand-in and the package are found."""
    path = os.pathsep.join([str(CHECKOUT), str(HERE)])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


def drive(
    folder: Path, *words: str, deeds: Mapping[str, str] | None = None, step_s: float = 0.02
) -> subprocess.Popen[str]:
    """Start a sweep whose cells do not train."""
    return subprocess.Popen(
        [sys.executable, str(HERE / "drive.py"), *FAST, *words],
        cwd=folder,
        env=environment(DEEDS=json.dumps(deeds or {}), STEP_S=str(step_s)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def selfdistill(folder: Path, *words: str, expect: int = 0, timeout: float = 300) -> str:
    """Run the real command to its end; return output and errors together."""
    done = subprocess.run(
        [sys.executable, "-m", "selfdistill_cli", *words],
        cwd=folder, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=timeout, check=False,
    )  # fmt: skip
    assert done.returncode == expect, f"{done.returncode}, not {expect}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def end(process: subprocess.Popen[str], expect: int = 0, timeout: float = 120) -> str:
    """Wait for the end; return output and errors together."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"still running after {timeout} s:\n{out}\n{err}") from None
    assert process.returncode == expect, f"{process.returncode}, not {expect}\n{out}\n{err}"
    return out + err


def wait_for(true: Callable[[], object], seconds: float = 60) -> None:
    """Wait until a condition holds."""
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit, "waited too long"
        time.sleep(0.02)


def only_sweep(folder: Path) -> Path:
    """The directory of the one sweep under runs."""
    (found,) = (folder / "runs/multirun").iterdir()
    return found


def cells(folder: Path) -> dict[str, Cell]:
    """Cells of the one sweep, by name; none before it is written."""
    found = list((folder / "runs/multirun").glob("*/ledger.jsonl"))
    return Ledger(found[0].parent).cells() if found else {}


def statuses(folder: Path) -> dict[str, str]:
    """Status of each cell, by name."""
    return {name: cell.status for name, cell in cells(folder).items()}


def names_in(path: Path) -> list[str]:
    """First words of the lines of a file of notes, sorted."""
    return sorted(line.split()[0] for line in path.read_text().splitlines())
