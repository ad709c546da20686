"""Start the real command in a process of its own and wait for what it does, with bounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selfdistill_cli.tracking.metrics_file import deterministic_view, read

SMALL = (
    "run.num_threads=1", "batch.tasks_per_step=4", "method.group_size=4", "eval.every=10",
    "eval.num_tasks=6", "eval.samples_per_task=1", "env.sandbox.workers=1", "tracker=none",
)  # fmt: skip
"""Overrides that make a step of the embedded policy take a fraction of a second."""


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Start `selfdistill WORDS` in `folder`; the caller waits for it."""
    return subprocess.Popen(
        [sys.executable, "-m", "selfdistill_cli", *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], timeout: float = 300) -> tuple[int, str, str]:
    """Wait; return exit code, output and errors. A process that hangs is killed."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"still running after {timeout} s:\n{out}\n{err}") from None
    return process.returncode, out, err


def run(folder: Path, *words: str, expect: int = 0, timeout: float = 300) -> str:
    """Run to the end, check the exit code, return output and errors together."""
    code, out, err = finish(start(folder, *words), timeout)
    assert code == expect, f"exit code {code}, expected {expect}\n{out}\n{err}"
    return out + err


def wait_until(process: subprocess.Popen[str], true: Callable[[], bool], seconds: float = 200):
    """Wait until a condition holds while the process runs."""
    end = time.monotonic() + seconds
    while not true():
        assert process.poll() is None, f"ended early:\n{process.communicate()}"
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def last_step(run_directory: Path) -> int:
    """Step of the last whole line of metrics.jsonl, -1 without one."""
    path = run_directory / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.is_file() else []
    for line in reversed(lines):
        try:
            return int(json.loads(line)["step"])
        except ValueError:
            continue
    return -1


def numbers(run_directory: Path) -> list[dict[str, Any]]:
    """Every line of metrics.jsonl without what depends on the clock or the machine."""
    return [deterministic_view(line) for line in read(run_directory / "metrics.jsonl")]


def final_files(run_directory: Path) -> dict[str, bytes]:
    """Bytes of the newest checkpoint's policy, by file name."""
    folder = (run_directory / "checkpoints" / "latest").resolve() / "policy"
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
