"""What Weights & Biases gets; runs in the process of `sink_worker.py`."""

from __future__ import annotations

import contextlib
import fcntl
import json
import time
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

    W&B cannot take a line back, and drops one whose internal step does not grow. A step that is
    done again after a resume gives the same numbers and is not logged twice; one that gives others
    (resume.allow, resume.step) is logged with an internal step that only ever grows, and the charts
    use the field `step`.
    """

    def __init__(self, first: dict[str, Any], report: Report):
        place = Path(first["folder"]) / "wandb" / "sent.jsonl"
        self.sent = Sent(place, first["finish_timeout_s"])
        self.report = report
        self.stopped = False

    def open(self, run: Any) -> None:
        """Take over a run that W&B admitted."""
        self.run = run
        self.next_there = None if run.offline else getattr(run, "starting_step", 0) or 0
        known_there = -1 if self.next_there is None else self.next_there - 1
        self.internal = max(self.sent.last_internal, known_there)

    def stop(self) -> None:
        """Somebody pressed stop in W&B, or a sweep there has seen enough of this run."""
        self.stopped = True
        self.report("stop", "asks to stop: stopping after this step, with a checkpoint")

    def log(self, order: dict[str, Any], samples: list[dict[str, Any]]) -> None:
        """One line; a table of samples stands on its own, since W&B's tables never change."""
        step, digest = order["step"], order["digest"]
        if self.sent.knows(step, digest, self.next_there):
            return
        self.internal = max(step, self.internal + 1)
        row: dict[str, Any] = {**order["metrics"], "step": step}
        if samples:
            row["samples"] = _table(samples)
        self.run.log(row, step=self.internal, commit=True)
        self.sent.note(step, self.internal, digest)

    def finish(self, status: str) -> None:
        """Close the run. One that was preempted is marked: a sweep's server gives it out again."""
        if status == "preempted" and not self.stopped:
            self.run.mark_preempting()
        self.run.finish(exit_code=EXIT_CODES.get(status, 1))


def _table(samples: list[dict[str, Any]]) -> Any:
    import wandb

    rows = [list(sample.values()) for sample in samples]
    return wandb.Table(columns=list(samples[0]), data=rows, allow_mixed_types=True)


class Sent:
    """What all attempts have logged: a file of lines [step, internal step, digest].

    An attempt waits up to `patience_s` for the one before, whose trainer was killed and which still
    sends; that is how long it may live.
    """

    def __init__(self, path: Path, patience_s: float):
        self._file = path.open("a+", encoding="utf-8")
        end = time.monotonic() + patience_s + 1.0
        while not _locked(self._file) and time.monotonic() < end:
            time.sleep(0.05)
        self._known = read_sent(path)
        self.last_internal = max((internal for internal, _ in self._known.values()), default=-1)

    def knows(self, step: int, digest: str, next_there: int | None) -> bool:
        """Whether these numbers were logged, and reached the server if `next_there`, the first
        internal step that it lacks, is given."""
        internal, known = self._known.get(step, (0, None))
        return known == digest and (next_there is None or internal < next_there)

    def note(self, step: int, internal: int, digest: str) -> None:
        """Remember a line that was logged."""
        self._known[step] = internal, digest
        self._file.write(json.dumps([step, internal, digest]) + "\n")
        self._file.flush()


def read_sent(path: Path) -> dict[int, tuple[int, str]]:
    """Internal step and digest of what was logged, by step; empty without a file."""
    known: dict[int, tuple[int, str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        with contextlib.suppress(ValueError):  # the end of a process that was killed
            step, internal, digest = json.loads(line)
            known[step] = internal, digest
    return known


def _locked(file: Any) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:300]
