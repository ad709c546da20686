"""Train as a job of Slurm: prepare the run directory, write its batch script, submit it once."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from selfdistill_cli.core.errors import ConfigError, RunError
from selfdistill_cli.core.locks import acquire
from selfdistill_cli.launching.jobs import write_job
from selfdistill_cli.launching.ranks import is_one_of_several
from selfdistill_cli.launching.settings import SlurmSettings
from selfdistill_cli.launching.slurm_script import render_job
from selfdistill_cli.training.run_directory import RunDirectory
from selfdistill_cli.training.settings import TrainSettings

JOB = "slurm_job.json"
"""In a run directory: the command line and the configuration that the ranks read."""
JOB_KEY = "slurm_job"
"""Of run.json: the job that was submitted last."""
PATIENCE_S = 120
"""How long a command of Slurm may take; its own limits are shorter."""
ENDED = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
         "PREEMPTED", "REVOKED", "TIMEOUT")  # fmt: skip
"""States of a job that Slurm still remembers and that will not run any more."""
UNREACHABLE = ("contact", "connect", "communication", "timed out", "try again", "protocol")
"""Words by which Slurm's commands say that the cluster is at fault and not what was asked."""


class Slurm:
    """Composes once; the job's ranks train on the resolved configuration."""

    def __init__(self, settings: SlurmSettings) -> None:
        self.settings = settings

    def launch(self, settings: TrainSettings, container: Mapping[str, Any], display: Any) -> int:
        """Submit a job, unless there is one; `settings.run.name` is set. Returns 0.

        Raises ConfigError and RunError with what sbatch said.
        """
        if is_one_of_several():
            raise ConfigError(
                "launcher=slurm submits a job that starts the ranks, but WORLD_SIZE says that this "
                "process is one of several; use launcher=inline here"
            )
        directory = run_path(settings)
        if under_way(directory, display):
            return 0
        script = render_job(self.settings, prepare(settings, container))
        if not self.settings.submit:
            display.message(f"written, not submitted: sbatch {script}")
            return 0
        with acquire(directory / ".submitting", "run.name"):
            if under_way(directory, display):  # by the same command, given twice at once
                return 0
            job_id = submit(script)
            record(directory / JOB, job_id)
        display.message(
            f"submitted job {job_id} for {directory}\n"
            f"output: {script.parent / 'logs' / f'slurm_{job_id}.out'}\n"
            f"squeue --jobs={job_id} shows it; scancel {job_id} ends it with a checkpoint"
        )
        return 0


def under_way(directory: Path, display: Any) -> bool:
    """Whether a job will train the run already, which is told. Raises RunError as `job_state`."""
    job_id = submitted(directory)
    state = None if job_id is None else job_state(job_id)
    if state is not None:
        display.message(
            f"job {job_id} of {directory} is {state.lower()}: nothing was submitted; "
            f"scancel {job_id} ends it"
        )
    return state is not None


def run_path(settings: TrainSettings) -> Path:
    """The run directory, whether it exists or not."""
    return Path(settings.run.root) / str(settings.run.name)


def prepare(settings: TrainSettings, container: Mapping[str, Any]) -> Path:
    """Make or check the run directory of a job; return its job file.

    Going back (resume.step) happens here, because a job that is put back into the queue must not
    do it again. Raises what RunDirectory.prepare raises, and CheckpointError.
    """
    directory = RunDirectory(run_path(settings))
    resume = {**container["resume"], "mode": "auto", "step": None}
    container = {**container, "resume": resume}
    directory.prepare(container, settings.resume)
    try:
        if settings.resume.step is not None:
            from selfdistill_cli.training.checkpoints import Checkpoints

            checkpoints = Checkpoints(directory.path / "checkpoints", settings.checkpoint)
            checkpoints.rewind(settings.resume.step)
        job = directory.path / JOB
        write_job(job, container)
        return job
    finally:
        directory.close()


def submit(script: Path) -> str:
    """Give a batch script to sbatch; return the id of the job or array.

    Raises ConfigError if there is no sbatch or if it refuses what the script asks for, RunError if
    the cluster cannot be reached.
    """
    if shutil.which("sbatch") is None:
        raise ConfigError(
            f"launcher=slurm: there is no command sbatch here. The script is written: submit it on "
            f"a machine of the cluster with\n  sbatch {script}\nlauncher.submit=false writes it "
            "without trying; launcher=inline and launcher=local train here"
        )
    done = _call("sbatch", "--parsable", str(script))
    if done.returncode != 0:
        said = done.stderr.strip() or f"exit code {done.returncode}"
        kind = RunError if _unreachable(said) else ConfigError
        raise kind(f"sbatch refused {script}:\n{said}")
    return done.stdout.strip().split(";")[0]


def record(job: Path, job_id: str) -> None:
    """Note in run.json which job trains the run of a job file: `12`, or `12_3` of an array."""
    RunDirectory(job.parent).update_identity(**{JOB_KEY: job_id, "status": "submitted"})


def submitted(directory: Path) -> str | None:
    """The job that was submitted last for a run, None if none was."""
    if not (directory / "run.json").is_file():
        return None
    return RunDirectory(directory).identity().get(JOB_KEY)


def cancel(job_id: str) -> None:
    """Ask Slurm to end a job, which then writes a checkpoint. Raises RunError."""
    done = _call("scancel", job_id)
    if done.returncode != 0:
        raise RunError(f"scancel {job_id}: {done.stderr.strip()}")


def answers() -> bool:
    """Whether there is a command that says what became of jobs."""
    return shutil.which("squeue") is not None


def job_state(job_id: str) -> str | None:
    """PENDING, RUNNING or another state of a job that will run on; None if it has ended.

    None, too, where there is no squeue. Raises RunError if the cluster does not answer.
    """
    if not answers():
        return None
    done = _call("squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={job_id}")
    if done.returncode != 0:
        if "Invalid job id" in done.stderr:  # it ended long ago
            return None
        raise RunError(
            f"job {job_id} was submitted for this run, and squeue does not say what became of it:\n"
            f"{done.stderr.strip()}"
        )
    states = [line.strip() for line in done.stdout.splitlines()]
    return next((state for state in states if state and state not in ENDED), None)


def _call(*words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            words, capture_output=True, text=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        raise RunError(f"{words[0]} did not answer within {PATIENCE_S} s") from error
    except OSError as error:
        raise RunError(f"{words[0]} cannot be started: {error.strerror}") from error


def _unreachable(said: str) -> bool:
    return any(word in said.lower() for word in UNREACHABLE)
