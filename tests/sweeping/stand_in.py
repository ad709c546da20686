"""A cell's process without training: it writes what a run writes, in a tenth of a second.

`python -m stand_in JOB`. What a cell does is said by its seed, in the environment variable DEEDS:
{"1": "fail"}. Every start and every end at the last step is noted beside the run directories.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

STEP_S = float(os.environ.get("STEP_S", "0.02"))


class Cell:
    """One run directory."""

    def __init__(self, container: dict[str, Any]):
        self.seed = str(container["seed"])
        self.steps = int(container["run"]["max_steps"])
        self.folder = Path(container["run"]["root"]) / container["run"]["name"]
        self.metrics = self.folder / "metrics.jsonl"
        self.stopped = False

    def note(self, what: str) -> None:
        with (self.folder.parent / f"{what}.txt").open("a") as file:
            file.write(f"{self.folder.name} {os.getpid()}\n")

    def run(self, deed: str) -> int:
        (self.folder / "logs").mkdir(parents=True, exist_ok=True)
        attempt = len(list((self.folder / "logs").glob("attempt_*"))) + 1
        (self.folder / "logs" / f"attempt_{attempt}").mkdir()
        self.note("starts")
        if deed == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        else:
            signal.signal(signal.SIGTERM, lambda *_: setattr(self, "stopped", True))
        done = len(self.metrics.read_text().splitlines()) if self.metrics.is_file() else 0
        for step in range(done + 1, self.steps + 1):
            time.sleep(STEP_S)
            with self.metrics.open("a") as file:
                value = None if deed == "null" else step / 10
                file.write(json.dumps({"step": step, "eval/success": value}) + "\n")
            if self.stopped:
                print("stopped after a checkpoint", file=sys.stderr)
                return 75
        return self.end(deed, attempt)

    def end(self, deed: str, attempt: int) -> int:
        if deed == "fail" or (deed == "fail once" and attempt == 1):
            print(f"error: the value of seed {self.seed} is wrong", file=sys.stderr)
            return 2
        if deed == "diverge":
            error = {"kind": "Diverged", "message": "step 3: loss is not finite"}
            text = json.dumps({"status": "failed", "error": {**error, "attempt": attempt}})
            (self.folder / "run.json").write_text(text)
            return 1
        if deed == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if deed == "deaf":
            time.sleep(600)
        if deed == "child":
            sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
            child = subprocess.Popen(sleeper, start_new_session=True)
            (self.folder / "child.txt").write_text(str(child.pid))
        if deed == "loud":
            for line in range(100_000):
                print(f"line {line} " + "x" * 40)
        self.note("ends")
        return 0


def main() -> int:
    container = json.loads(Path(sys.argv[1]).read_text())["container"]
    cell = Cell(container)
    return cell.run(json.loads(os.environ.get("DEEDS", "{}")).get(cell.seed, ""))


if __name__ == "__main__":
    sys.exit(main())
