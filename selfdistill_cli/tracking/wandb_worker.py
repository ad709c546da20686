"""The process that holds wandb: reads orders from standard input, one JSON object per line.

It runs apart from the trainer, so that no exit hook, signal handler, thread, console wrapper or
crash of wandb reaches the run, and so that ending it is one signal. It is started as a file and
imports nothing of this project. It outlives a killed trainer only to close the run.

Orders: {"init": {...}}, {"step": n, "metrics": {...}, "digest": text}, {"finish": status}. Reports
on standard output: {"event": "ready" | "refused" | "error" | "finished", "text": ...}.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import threading
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


def main() -> None:
    """Obey orders until the last one, or until the trainer is gone."""
    orders, report = _own_channels()
    first = json.loads(orders.readline() or "{}").get("init")
    if first is None:
        return
    _end_with(os.getppid(), first["finish_timeout_s"])
    sent = Sent(Path(first["run_dir"]) / "wandb" / "sent.jsonl", first["finish_timeout_s"])
    run = _start(first, report)
    if run is None:
        return
    status = _record(run, orders, report, sent)
    if status == "preempted":
        run.mark_preempting()
    run.finish(exit_code=EXIT_CODES.get(status, 1))
    report("finished", status)


def _own_channels() -> tuple[Any, Report]:
    """Take standard input and output away from wandb and its children."""
    orders = os.fdopen(os.dup(0), "r", encoding="utf-8")
    reports = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)

    def report(event: str, text: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # the trainer is gone; the run is still closed
            reports.write(json.dumps({"event": event, "text": text}) + "\n")
            reports.flush()

    return orders, report


def _end_with(trainer: int, patience_s: float) -> None:
    """End this process `patience_s` after the trainer, whatever wandb is waiting for."""

    def watch() -> None:
        while os.getppid() == trainer:
            time.sleep(0.5)
        time.sleep(patience_s)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _start(first: dict[str, Any], report: Report) -> Any:
    """Return a run, or None if W&B refused it. Without an answer it is recorded offline."""
    import wandb
    from wandb.errors import AuthenticationError, UsageError

    try:
        run = _init(wandb, first, first["mode"])
    except (AuthenticationError, UsageError) as error:
        report("refused", _one_line(error))
        return None
    except Exception as error:  # whatever a network does; the run must be recorded somewhere
        if first["mode"] == "offline":
            raise
        wandb.teardown()  # forgets the half-made run, whose id is still in use
        run = _init(wandb, first, "offline")
        report("error", f"{_one_line(error)}; this attempt is recorded offline")
    run.define_metric("step")
    run.define_metric("*", step_metric="step")
    report("ready", "" if run.offline else str(run.url))
    return run


def _init(wandb: Any, first: dict[str, Any], mode: str) -> Any:
    known = getattr(wandb.Settings, "model_fields", QUIET)
    settings = {name: value for name, value in QUIET.items() if name in known}
    return wandb.init(
        mode=mode,
        dir=first["run_dir"],
        id=first["run_id"],
        name=first["run_name"],
        resume="allow",
        project=first["project"],
        entity=first["entity"],
        group=first["group"],
        tags=first["tags"],
        config=first["config"],
        settings=wandb.Settings(init_timeout=first["init_timeout_s"], **settings),
    )


def _record(run: Any, orders: Any, report: Report, sent: Sent) -> str:
    """Log until the order to finish; return the status, `failed` if the trainer vanished.

    W&B cannot take a line back, and drops one whose internal step does not grow. A step that is
    done again after a resume gives the same numbers and is not logged twice; one that gives others
    (resume.allow, resume.step) is logged with an internal step that only ever grows, and the charts
    use the field `step`.
    """
    next_there = None if run.offline else getattr(run, "starting_step", 0) or 0
    internal = max(sent.last_internal, -1 if next_there is None else next_there - 1)
    for line in orders:
        if not line.endswith("\n"):  # the trainer was killed while it wrote
            break
        order = json.loads(line)
        if "finish" in order:
            return order["finish"]
        step, digest = order["step"], order["digest"]
        if sent.knows(step, digest, next_there):
            continue
        try:
            internal = max(step, internal + 1)
            run.log({**order["metrics"], "step": step}, step=internal, commit=True)
            sent.note(step, internal, digest)
        except Exception as error:  # one line lost must not lose the others
            report("error", _one_line(error))
    return "failed"


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


if __name__ == "__main__":
    sys.exit(main())
