"""The process that holds a library of a tracker: orders come in on standard input.

It runs apart from the trainer, so that no exit hook, signal handler, thread, console wrapper or
crash of the library reaches the run, and so that ending it is one signal. It is started as a file
with the file of a backend as its argument, and imports nothing else of this project. It outlives
a killed trainer only to close the copy.

Orders are JSON, one a line: {"init": {...}}, {"step": n, "metrics": {...}, "digest": text},
{"finish": status}.
Reports on standard output: {"event": "ready" | "refused" | "error" | "stop" | "finished", "text":
...}. A backend has `start(first, report)`, which returns None or something with `log(order,
samples)`, `finish(status)` and, where every attempt writes the whole copy anew, `begin()`:
the lines that metrics.jsonl holds before the first one of this attempt follow it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

Report = Callable[[str, str], None]


def main() -> None:
    """Obey orders until the last one, or until the trainer is gone."""
    for number in (signal.SIGTERM, signal.SIGUSR1):  # Slurm may send them to all processes of a run
        signal.signal(number, signal.SIG_IGN)
    orders, report = own_channels()
    first = json.loads(orders.readline() or "{}").get("init")
    if first is None:
        return
    end_with(os.getppid(), first["finish_timeout_s"])
    copy = load(sys.argv[1]).start(first, report)
    if copy is None:
        return
    status = record(copy, first, orders, report)
    copy.finish(status)
    report("finished", status)


def own_channels() -> tuple[Any, Report]:
    """Take standard input and output away from the library and its children."""
    orders = os.fdopen(os.dup(0), "r", encoding="utf-8")
    reports = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    lock = threading.Lock()

    def report(event: str, text: str) -> None:
        # The trainer may be gone; the copy is still closed.
        with contextlib.suppress(BrokenPipeError), lock:
            reports.write(json.dumps({"event": event, "text": text}) + "\n")
            reports.flush()

    return orders, report


def end_with(trainer: int, patience_s: float) -> None:
    """End this process `patience_s` after the trainer, whatever the library is waiting for."""

    def watch() -> None:
        while os.getppid() == trainer:
            time.sleep(0.5)
        time.sleep(patience_s)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def load(path: str) -> Any:
    """The backend, as a module of its own."""
    spec = importlib.util.spec_from_file_location("backend", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def record(copy: Any, first: dict[str, Any], orders: Any, report: Report) -> str:
    """Log until the order to finish; return the status, `failed` if the trainer vanished."""
    run_dir, begin = Path(first["run_dir"]), getattr(copy, "begin", None)
    for line in orders:
        if not line.endswith("\n"):  # the trainer was killed while it wrote
            break
        order = json.loads(line)
        if "finish" in order:
            return order["finish"]
        step = order["step"]
        try:
            if begin is not None:
                begin()
                begin = None
                for earlier in lines_before(run_dir / "metrics.jsonl", step):
                    copy.log(earlier, samples(first, run_dir, earlier["step"]))
            copy.log(order, samples(first, run_dir, step))
        except Exception as error:  # one line lost must not lose the others
            report("error", one_line(error))
    return "failed"


def lines_before(path: Path, step: int) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl before a step, as orders; one that is not whole is left out."""
    found: list[dict[str, Any]] = []
    if path.is_file():
        for raw in path.read_bytes().splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                line = json.loads(raw)
                number = int(line.pop("step"))
                known = {key: value for key, value in line.items() if value is not None}
                if number < step:
                    found.append({"step": number, "metrics": known})
    return found


def samples(first: dict[str, Any], run_dir: Path, step: int) -> list[dict[str, Any]]:
    """The first episodes that the run wrote for a step, texts cut; few, whatever the run wrote."""
    path = run_dir / "trajectories" / f"step_{step:06d}.jsonl"
    if not first["samples"] or not path.is_file():
        return []
    with path.open(encoding="utf-8") as file:
        episodes = [json.loads(line) for line in islice(file, first["samples"])]
    longest = first["sample_characters"]
    return [
        {
            "task": episode["task"],
            "reward": episode.get("reward"),
            "success": episode.get("success"),
            "stop": episode.get("stop", ""),
            "prompt": cut(episode["prompt"], longest),
            "answer": cut("\n".join(turn["text"] for turn in episode["turns"]), longest),
        }
        for episode in episodes
    ]


def cut(text: str, longest: int) -> str:
    """The beginning of a text."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def one_line(error: BaseException) -> str:
    """What went wrong, in one line."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:300]


if __name__ == "__main__":
    sys.exit(main())
