"""Batch scripts of `launcher=slurm`: options for sbatch, ranks by srun, requeue while work is left.

What the scripts rely on, as seen on clusters: `--signal` without `B:` reaches the ranks and not the
script; SIGTERM reaches both; a job that was cancelled would come back if it was requeued while it
ends, so a script asks for the job's state first.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from string import Template

from selfdistill_cli.core.errors import ConfigError, Preempted
from selfdistill_cli.launching.settings import SlurmSettings
from selfdistill_cli.training.files import write_text

PORTS = (15000, 15000)
"""First port that ranks meet at, and how many there are: below those that systems give away."""
LAST_WORDS_S = 60
"""How long the other ranks have, after one ended, to end by themselves with their own exit code."""

class _Bash(Template):
    """Text of bash with places `@{name}`."""

    delimiter = "@"


BODY = _Bash("""\
# A task of an array has its own name.
id=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
id=${id:-$SLURM_JOB_ID}
start=$((${SLURM_RESTART_COUNT:-0} + 1))
echo "$(date '+%F %T') job $id, start $start, on $SLURM_JOB_NODELIST: $job"

cd -- @{folder} || exit
@{path}unset MASTER_ADDR MASTER_PORT
@{setup}# Where ranks meet: on the first node. A line of launcher.setup may export something else.
export MASTER_ADDR=${MASTER_ADDR:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}
export MASTER_PORT=${MASTER_PORT:-$((@{first_port} + SLURM_JOB_ID % @{num_ports}))}

# Ranks get SIGUSR1 before the time limit and SIGTERM at scancel or preemption; they stop with a
# checkpoint and exit code @{preempted}. This script waits for them.
trap : TERM
srun --nodes=@{nodes} --ntasks-per-node=@{num_processes} --cpus-per-task=@{cpus_per_task} \\
  --kill-on-bad-exit=0 --wait=@{last_words_s} \\
  @{python} -m selfdistill_cli.cli.worker "$job" slurm
code=$?

# Work is left. A job that was cancelled ends; one that met its time limit may still come back.
if ((code == @{preempted})); then
  state=$(scontrol --oneliner show job "$id" | grep -oE ' (JobState|Reason)=\\w+' | tr -d '\\n')
  echo "stopped with a checkpoint; to continue by hand: sbatch @{again}"
  case $state in
    *JobState=RUNNING* | *JobState=COMPLETING*Reason=TimeLimit*)
      @{requeue}
      ;;
    *) echo "not put back into the queue:$state" ;;
  esac
fi
exit $code
""")
REQUEUE = 'echo "back into the queue" && scontrol requeue "$id"'
NO_REQUEUE = 'echo "not put back into the queue: launcher.requeue=false"'


def render_job(settings: SlurmSettings, job: Path) -> Path:
    """Write `slurm.sbatch` beside a job file; return its path.

    It may be submitted from any folder, as often as one likes. Raises ConfigError for a path that
    Slurm cannot write to, RunError where the script cannot be written.
    """
    script = job.resolve().parent / "slurm.sbatch"
    logs = script.parent / "logs"
    logs.mkdir(exist_ok=True)
    options = {"job-name": script.parent.name, "output": _pattern(logs, "slurm_%j.out")}
    text = _script(settings, options, f"job={_quoted(job.resolve())}\n", script)
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
    choose = f"jobs=(\n{rows}\n)\njob=${{jobs[$SLURM_ARRAY_TASK_ID]}}\n"
    write_text(script, _script(settings, options, choose, script))
    return script


def _script(settings: SlurmSettings, own: dict[str, str], choose: str, script: Path) -> str:
    lines = [f"#SBATCH {option}" for option in [*_options(settings, own), *settings.extra]]
    setup = "\n".join(["set -e", *settings.setup, "set +e", ""]) if settings.setup else ""
    body = BODY.substitute(
        folder=_quoted(Path.cwd()),
        path=_import_path(),
        setup=setup,
        first_port=PORTS[0],
        num_ports=PORTS[1],
        preempted=Preempted.exit_code,
        nodes=settings.nodes,
        num_processes=settings.num_processes,
        cpus_per_task=settings.cpus_per_task,
        last_words_s=LAST_WORDS_S,
        python=_quoted(Path(sys.executable)),
        requeue=REQUEUE if settings.requeue else NO_REQUEUE,
        again=_in_double_quotes(_quoted(script)),
    )
    head = "\n".join(["#!/bin/bash", *lines])
    again = f"# Made by launcher=slurm. To submit it again: sbatch {_quoted(script)}"
    return f"{head}\n{again}\n\n{choose}\n{body}"


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


def _in_double_quotes(text: str) -> str:
    for special in '\\"$`':
        text = text.replace(special, f"\\{special}")
    return text


def _import_path() -> str:
    """A line for what this Python would not find by itself: modules beside `--config-dir`, say."""
    scripts = str(Path(sys.executable).parent)
    own: dict[str, None] = {}
    for path in (str(Path(entry).resolve()) for entry in sys.path if entry):
        inside = any(path.startswith(f"{base}/lib") for base in (sys.prefix, sys.base_prefix))
        if not inside and path != scripts:
            own[path] = None
    if not own:
        return ""
    joined = shlex.quote(os.pathsep.join(own))
    return f"export PYTHONPATH={joined}${{PYTHONPATH:+:$PYTHONPATH}}\n"
