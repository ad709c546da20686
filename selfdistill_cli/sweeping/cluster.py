"""A sweep on Slurm: one array whose tasks are the cells, and what became of them afterwards.

Nothing of the sweep waits for the cluster. Each cell's run directory says how its job ended, and
squeue which jobs are left; the ledger learns of both whenever somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from selfdistill_cli.analysis.ledger import Cell, Ledger
from selfdistill_cli.config import rules
from selfdistill_cli.config.cells import Made
from selfdistill_cli.config.checked import build
from selfdistill_cli.core.errors import ConfigError, Preempted
from selfdistill_cli.launching import slurm
from selfdistill_cli.launching.settings import SlurmSettings
from selfdistill_cli.launching.slurm_script import render_array
from selfdistill_cli.sweeping import jobs
from selfdistill_cli.sweeping.folder import SweepFolder
from selfdistill_cli.sweeping.outcome import finite, outcome_of
from selfdistill_cli.sweeping.processes import Ended
from selfdistill_cli.sweeping.readings import Follower
from selfdistill_cli.sweeping.table import total_steps
from selfdistill_cli.training.run_directory import RunDirectory
from selfdistill_cli.training.settings import TrainSettings

CODES = {"finished": 0, "preempted": Preempted.exit_code}
"""Exit code of a run by its status in run.json; every other status is a failure."""
LEFT = ("pending", "running", "preempted")
"""Statuses of cells that have something left to do."""


def submit(
    folder: SweepFolder, make: Callable[[Mapping[str, str]], Made], settings: SlurmSettings
) -> int:
    """Submit every cell that is left and has no job, as one array; return the exit code.

    Raises ConfigError and RunError with what sbatch said.
    """
    left = [c for c in folder.cells.values() if c.status in LEFT and c.job is None]
    prepared = {cell.name: job for cell in left if (job := _prepared(folder, cell, make))}
    if not prepared:
        return 0
    script = render_array(settings, folder.path, list(prepared.values()), settings.jobs)
    if not settings.submit:
        print(f"written, not submitted: sbatch {script}")
        return 0
    array = slurm.submit(script)
    for number, (name, job) in enumerate(prepared.items()):
        slurm.record(job, f"{array}_{number}")
        log = script.parent / "logs" / f"slurm_{array}_{number}.out"
        attempt = folder.cells[name].attempt + 1
        folder.change(name, job=f"{array}_{number}", log=str(log), attempt=attempt, error=None)
    print(f"submitted array {array}: {len(prepared)} cells; scancel {array} ends all of them")
    return 0


def _prepared(
    folder: SweepFolder, cell: Cell, make: Callable[[Mapping[str, str]], Made]
) -> Path | None:
    """The job file of a cell, None if it is invalid."""
    try:
        made = make(cell.values)
        rules.check(made.settings)
    except ConfigError as error:
        folder.change(cell.name, status="invalid", error=str(error))
        return None
    container = deepcopy(made.container)
    jobs.prepare(folder, cell, container)
    settings: TrainSettings = build(container, TrainSettings)
    return slurm.prepare(settings, container)


def refresh(ledger: Ledger) -> None:
    """Let the ledger know what became of Slurm's jobs. The caller holds the sweep's directory."""
    for name, changed in news(ledger, ledger.cells()).items():
        ledger.append(name, **changed)


def check_over(cells: Iterable[Cell]) -> None:
    """Raise ConfigError if one of the cells has a job that has not ended."""
    for cell in cells:
        if cell.job is not None and (state := slurm.job_state(cell.job)) is not None:
            raise ConfigError(
                f"{cell.name}: its job {cell.job} is {state.lower()}; wait for its end, or end it "
                f"with scancel {cell.job}"
            )


def learn(folder: SweepFolder) -> None:
    """Write down what became of jobs. Raises RunError without an answer."""
    for name, changed in news(folder.ledger, folder.cells).items():
        folder.change(name, **changed)


def take_back(folder: SweepFolder) -> None:
    """Before cells start here: raise ConfigError if a job, as `learn` knows it, has not ended."""
    left = [c for c in folder.cells.values() if c.job is not None and c.status in LEFT]
    if left and not slurm.answers():
        raise ConfigError(
            f"{left[0].name} was submitted as job {left[0].job} of Slurm, and there is no squeue "
            "here that says what became of it; give the command on a machine of the cluster"
        )
    if left:
        names = ", ".join(f"{cell.name} (job {cell.job})" for cell in left[:5])
        raise ConfigError(
            f"Slurm has jobs of this sweep: {names}{' ...' if left[5:] else ''}; continue with "
            f"launcher=slurm, wait for them, or end them: selfdistill sweep cancel {folder.path}"
        )


def news(ledger: Ledger, cells: Mapping[str, Cell]) -> dict[str, dict[str, Any]]:
    """What changed about cells that have a job, by name. Raises RunError without an answer."""
    waiting = [cell for cell in cells.values() if cell.job is not None and cell.status in LEFT]
    if not waiting:
        return {}
    plan = ledger.plan()
    found = {cell.name: _change(cell, plan) for cell in waiting}
    return {name: changed for name, changed in found.items() if changed}


def _change(cell: Cell, plan: Mapping[str, Any]) -> dict[str, Any]:
    assert cell.job is not None
    state, run = slurm.job_state(cell.job), Path(cell.run)
    if state is not None:
        status = "running" if state in ("RUNNING", "COMPLETING") else "pending"
        return {} if status == cell.status else {"status": status}
    told = str(RunDirectory(run).identity().get("status"))
    if told not in CODES and told != "failed" and not slurm.answers():
        return {}
    follower = Follower(run, plan["metric"], 0)
    follower.news()
    objective = follower.objective(plan["objective"], plan["direction"])
    if told in CODES or told == "failed":
        ended = Ended(code=CODES.get(told, 1), asked=False, seconds=0.0, said=_tail(cell.log))
        status, error = outcome_of(ended, None, run, objective)
    else:
        status = "failed"
        error = f"job {cell.job} ended while the run was {told}; {_tail(cell.log) or 'no output'}"
    if status == "done" and _has_more(cell, plan):
        status = "preempted"
    shown = objective if finite(objective) else None
    job = None if status == "preempted" else cell.job
    return {"status": status, "error": error, "objective": shown, "job": job}


def _has_more(cell: Cell, plan: Mapping[str, Any]) -> bool:
    """Whether more steps were asked for after the job was submitted."""
    asked = total_steps(Path(cell.run).parent, cell.name)
    return "run.max_steps" not in cell.values and 0 < asked < int(plan.get("max_steps") or 0)


def _tail(log: str) -> str:
    """The last lines of a job's output."""
    try:
        data = Path(log).read_bytes()[-4000:]
    except OSError:
        return ""
    return "\n".join(data.decode(errors="replace").splitlines()[-6:])
