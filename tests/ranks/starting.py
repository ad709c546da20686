"""Start the ranks of a job, with a time limit that ends them and whatever they have started."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]


def start(size: int, command: Sequence[str], log: Path) -> list[subprocess.Popen[bytes]]:
    """Start `size` ranks of `python COMMAND` on this machine; each is a process group."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    shared = {
        "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{CHECKOUT}{os.pathsep}{HERE}",
    }  # fmt: skip
    processes: list[subprocess.Popen[bytes]] = []
    for rank in range(size):
        with Path(f"{log}_{rank}.txt").open("wb") as out:
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            processes.append(
                subprocess.Popen(
                    [sys.executable, *command],
                    env={**os.environ, **shared, **own},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
    return processes


def finish(processes: Sequence[subprocess.Popen[bytes]], timeout_s: float) -> list[int | None]:
    """Wait for all; end what is left after the time, or after one that failed. Exit codes."""
    end = time.monotonic() + timeout_s
    while any(p.poll() is None for p in processes) and time.monotonic() < end:
        if any(p.returncode for p in processes):
            time.sleep(2)
            break
        time.sleep(0.05)
    codes = [p.poll() for p in processes]
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return codes


def run_job(folder: Path, size: int, runs: Sequence[Sequence[str]], timeout_s: float = 400) -> None:
    """Make the runs on `size` ranks; each is a list of words for the command line."""
    job = folder / f"job_{size}.json"
    job.write_text(json.dumps([list(words) for words in runs]))
    log = folder / f"job_{size}"
    codes = finish(start(size, [str(HERE / "job.py"), str(job)], log), timeout_s)
    said = "\n".join(Path(f"{log}_{r}.txt").read_text()[-3000:] for r in range(size))
    logs = "\n".join(p.read_text()[-3000:] for p in folder.glob("runs/*/ranks/*.log"))
    assert codes == [0] * size, f"exit codes {codes}\n{said}\n{logs}"
