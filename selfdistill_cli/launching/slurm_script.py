"""Batch scripts of `launcher=slurm`: options for sbatch, ranks by srun, requeue while work is left.

Their second half stands in `launch/slurm/train.sbatch`, which people submit by themselves, too.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.launching.settings import SlurmSettings
from selfdistill_cli.training.files import launch_folder, write_text

MARK = "# ---- From here on the same"
"""Begins the part of `launch/slurm/train.sbatch` that every script has."""


def render_job(settings: SlurmSettings, job: Path) -> Path:
    """Write `slurm.sbatch` beside a job file; return its path.

    It may be submitted from any folder, as often as one likes. Raises ConfigError for a path that
    Slurm cannot write to, RunError where the script cannot be written.
    """
    script = job.resolve().parent / "slurm.sbatch"
    logs = script.parent / "logs"
    logs.mkdir(exist_ok=True)
    options = {"job-name": script.parent.name, "output": _pattern(logs, "slurm_%j.out")}
    text = _script(settings, options, f"job={_quoted(job.resolve())}", script)
    write_text(script, text)
    return script


def render_array(
    settings: SlurmSettings, folder: Path, jobs: Sequence[Path], limit: int | None
) -> Path:
    """Write `array.sbatch` in a folder; return its path. Task k of the array trains `jobs[k]`.

    `jobs` are job files made by `slurm.prepare`, one for each run; `limit` is how many run at the
    same time. Each task is stopped, put back and continued as a job of its own would be, and its
    output goes to `folder/logs/slurm_ARRAY_TASK.out`. `slurm.submit(script)` submits it and returns
    the id of the array; `slurm.record(jobs[k], f"{id}_{k}")` notes in run.json who trains a run.
    Raises ConfigError for a path that Slurm cannot write to.
    """
    assert jobs, "an array has at least one job"
    logs = folder.resolve() / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    script = folder.resolve() / "array.sbatch"
    last = len(jobs) - 1
    options = {
        "job-name": folder.resolve().name,
        "output": _pattern(logs, "slurm_%A_%a.out"),
        "array": f"0-{last}" + ("" if limit is None else f"%{limit}"),
    }
    rows = "\n".join(f"  {_quoted(job.resolve())}" for job in jobs)
    choose = f"jobs=(\n{rows}\n)\njob=${{jobs[$SLURM_ARRAY_TASK_ID]}}"
    write_text(script, _script(settings, options, choose, script))
    return script


def _script(settings: SlurmSettings, own: dict[str, str], choose: str, script: Path) -> str:
    lines = [f"#SBATCH {option}" for option in [*_options(settings, own), *settings.extra]]
    rows = [
        "#!/bin/bash",
        *lines,
        f"# Made by launcher=slurm; to submit it again: sbatch {_quoted(script)}",
        "",
        choose,
        f"cd -- {_quoted(Path.cwd())} || exit",
        *_import_path(),
        "unset MASTER_ADDR MASTER_PORT",
        *(["set -e", *settings.setup, "set +e"] if settings.setup else []),
        f'command=({_quoted(Path(sys.executable))} -m selfdistill_cli.cli.worker "$job" slurm)',
        "",
        _shared(),
    ]
    return "\n".join(rows)


def _shared() -> str:
    """What every script ends with: ranks, signals, requeue."""
    text = (launch_folder("slurm") / "train.sbatch").read_text(encoding="utf-8")
    return text[text.index(MARK) :]


def _options(settings: SlurmSettings, own: dict[str, str]) -> list[str]:
    """Options of sbatch, each a line of the script."""
    limit = settings.limit_s
    given = {
        **{name: _for_sbatch(value) for name, value in own.items()},
        "open-mode": "append",
        "nodes": settings.nodes,
        "ntasks-per-node": settings.num_processes,
        "cpus-per-task": settings.cpus_per_task,
        "gpus-per-node": settings.gpus_per_node,
        "mem": settings.memory,
        "time": None if limit is None else _slurm_time(limit),
        "signal": f"USR1@{settings.signal_before_s}",
        "partition": settings.partition,
        "account": settings.account,
        "qos": settings.qos,
    }
    listed = [f"--{name}={value}" for name, value in given.items() if value is not None]
    return [*listed, "--requeue" if settings.requeue else "--no-requeue"]


def _slurm_time(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02d}:{minutes:02d}:{seconds:02d}"


def _pattern(folder: Path, name: str) -> str:
    """A file of sbatch: its folder stands for itself, `name` may hold %j, %A and %a."""
    path = str(folder)
    if "\\" in path or not path.isprintable():
        raise ConfigError(
            f"run.root, run.name: got {path!r}, but Slurm cannot write its output to a folder with "
            "a backslash or a line break in its path; choose another one"
        )
    return f"{path.replace('%', '%%')}/{name}"


def _for_sbatch(text: str) -> str:
    """A value as sbatch reads it from a line of the script."""
    if text.replace("/", "").replace("%", "").replace("_", "").replace("-", "").isalnum():
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _import_path() -> list[str]:
    """A line for what this Python would not find by itself: modules beside `--config-dir`, say."""
    scripts = str(Path(sys.executable).parent)
    own: dict[str, None] = {}
    for path in (str(Path(entry).resolve()) for entry in sys.path if entry):
        inside = any(path.startswith(f"{base}/lib") for base in (sys.prefix, sys.base_prefix))
        if not inside and path != scripts:
            own[path] = None
    joined = shlex.quote(os.pathsep.join(own))
    return [f"export PYTHONPATH={joined}${{PYTHONPATH:+:$PYTHONPATH}}"] if own else []
