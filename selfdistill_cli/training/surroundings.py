"""Where an attempt ran: versions, the checkout, the job of a cluster."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "hydra-core", "omegaconf", "wandb")


def environment_text() -> str:
    """Python, platform, packages and, inside one, the job of Slurm; a line each."""
    lines = [f"python {platform.python_version()}", f"platform {platform.platform()}"]
    for name in PACKAGES:
        try:
            lines.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            lines.append(f"{name} not installed")
    job = batch_job()
    lines += [f"slurm {job}"] if job else []
    return "\n".join(lines) + "\n"


def batch_job() -> str | None:
    """`job 12, start 2 on n[1-2]` inside a job of Slurm, else None."""
    known = os.environ
    number = known.get("SLURM_JOB_ID")
    if number is None:
        return None
    array, task = known.get("SLURM_ARRAY_JOB_ID"), known.get("SLURM_ARRAY_TASK_ID")
    name = f"{array}_{task}" if array and task else number
    start = int(known.get("SLURM_RESTART_COUNT") or 0) + 1
    return f"job {name}, start {start} on {known.get('SLURM_JOB_NODELIST', 'unknown nodes')}"


def git_state() -> str:
    """Commit and changed files of the checkout that the command was given in, if there is one."""
    try:
        head = _git("rev-parse", "HEAD")
        return f"commit {head}{_git('status', '--short')}"
    except (OSError, subprocess.SubprocessError):
        return "not in a git checkout\n"


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], capture_output=True, text=True, check=True, timeout=10
    ).stdout
