"""What Weights & Biases gets; runs in the process of `sink_worker.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

EXIT_CODES = {"finished": 0, "preempted": 75}
QUIET = {
    "silent": True,
    "console": "off",
    "disable_git": True,
    "disable_code": True,
    "save_code": False,
    "x_disable_stats": True,
    "x_disable_meta": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
    "x_transaction_log_flush_interval": 1.0,
}
"""Nothing on the console, no look at the machine, the code or the git repository."""

Report = Callable[[str, str], None]


def start(first: dict[str, Any], report: Report) -> Copy | None:
    """Return a run, or None if W&B refused it. Without an answer it is recorded offline."""
    import wandb
    from wandb.errors import AuthenticationError, UsageError

    copy = Copy(first, report)
    try:
        run = _init(wandb, first, first["mode"], copy.stop)
    except (AuthenticationError, UsageError) as error:
        report("refused", _one_line(error))
        return None
    except Exception as error:  # whatever a network does; the run must be recorded somewhere
        if first["mode"] == "offline":
            raise
        wandb.teardown()  # forgets the half-made run, whose id is still in use
        run = _init(wandb, first, "offline", copy.stop)
        report("error", f"{_one_line(error)}; this attempt is recorded offline")
    run.define_metric("step")
    run.define_metric("*", step_metric="step")
    report("ready", "" if run.offline else str(run.url))
    copy.open(run)
    return copy


def _init(wandb: Any, first: dict[str, Any], mode: str, stop: Callable[[], None]) -> Any:
    known = getattr(wandb.Settings, "model_fields", QUIET)
    settings = {n: v for n, v in {**QUIET, "stop_fn": stop}.items() if n in known}
    return wandb.init(
        mode=mode,
        dir=first["folder"],
        id=first["run_id"],
        name=first["run_name"],
        resume="allow",
        project=first["project"],
        entity=first["entity"],
        group=first["group"],
        job_type=first["job_type"],
        notes=first["notes"],
        tags=first["tags"],
        config=first["config"],
        settings=wandb.Settings(init_timeout=first["init_timeout_s"], **settings),
    )


class Copy:
    """One attempt of a run in W&B.

    W&B drops a line whose internal step does not grow. After a resume from an earlier checkpoint
    our steps are smaller than what was logged before, so the internal step only ever grows, over
    all attempts; the charts use the field `step`.
    """

    def __init__(self, first: dict[str, Any], report: Report):
        self.last_step = Path(first["folder"]) / "wandb" / "last_step"
        self.report = report
        self.stopped = False

    def open(self, run: Any) -> None:
        """Take over a run that W&B admitted."""
        self.run = run
        known_there = (getattr(run, "starting_step", 0) or 0) - 1
        self.internal = max(_read_number(self.last_step), known_there)

    def stop(self) -> None:
        """Somebody pressed stop in W&B, or a sweep there has seen enough of this run."""
        self.stopped = True
        self.report("stop", "asks to stop: stopping after this step, with a checkpoint")

    def log(self, step: int, metrics: dict[str, float], samples: list[dict[str, Any]]) -> None:
        """One line; a table of samples stands on its own, since W&B's tables never change."""
        self.internal = max(step, self.internal + 1)
        self.last_step.write_text(str(self.internal))
        row: dict[str, Any] = {**metrics, "step": step}
        if samples:
            row["samples"] = _table(samples)
        self.run.log(row, step=self.internal, commit=True)

    def finish(self, status: str) -> None:
        """Close the run. One that was preempted is marked: a sweep's server gives it out again."""
        if status == "preempted" and not self.stopped:
            self.run.mark_preempting()
        self.run.finish(exit_code=EXIT_CODES.get(status, 1))


def _table(samples: list[dict[str, Any]]) -> Any:
    import wandb

    rows = [list(sample.values()) for sample in samples]
    return wandb.Table(columns=list(samples[0]), data=rows, allow_mixed_types=True)


def _read_number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return -1


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:300]
