"""Where an attempt ran: versions, machine, the checkout, the job of a cluster."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

PACKAGES = (
    "torch", "transformers", "tokenizers", "numpy", "hydra-core", "omegaconf", "deepspeed", "peft",
    "bitsandbytes", "vllm", "wandb", "tensorboard", "trackio",
)  # fmt: skip
GIB = 1 << 30


def environment_text() -> str:
    """Python, packages, machine and, inside one, the job of Slurm; a line each."""
    lines = [f"python {platform.python_version()}", f"platform {platform.platform()}"]
    for name in PACKAGES:
        try:
            lines.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            lines.append(f"{name} not installed")
    job = batch_job()
    return "\n".join([*lines, *_hardware(), *([f"slurm {job}"] if job else [])]) + "\n"


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


def _hardware() -> Iterator[str]:
    import torch  # here: this module is read before a configuration is checked

    yield f"cpu {_cpu_model()}"
    yield f"cores {len(os.sched_getaffinity(0))} of {os.cpu_count()}"
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    yield f"memory {pages * size / GIB:.1f} GiB"
    if not torch.cuda.is_available():
        yield "gpu none"
        return
    for index in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(index)
        yield f"gpu {index} {gpu.name}, {gpu.total_memory / GIB:.1f} GiB, cuda {torch.version.cuda}"


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], capture_output=True, text=True, check=True, timeout=10
    ).stdout
