"""What isolation costs, by level and kind of job: `python tests/measure_sandbox.py`.

Programs that do next to nothing, so that what is measured is the sandbox: milliseconds per job,
cold (a sandbox from nothing), warm one after another (best, median, 90th percentile), and per job
of a batch with one and with two workers. CPU is what the trusted process, the fork servers and the
programs use together, per job: it hardly depends on what else the machine does. `--repeats N`
measures N times and shows the best of each, for machines that do something else as well.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from statistics import median, quantiles

from attacking import server

from selfdistill_cli.core.errors import SandboxError
from selfdistill_cli.sandbox.measure import KINDS, batch_ms, cold_ms, warm_ms
from selfdistill_cli.sandbox.sandbox import Sandbox
from selfdistill_cli.sandbox.settings import SandboxSettings

HEAD = (
    "level", "job", "cold", "warm best", "warm median", "warm 90 %", "CPU", "batch, 1 worker",
    "2 workers",
)  # fmt: skip


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args()
    print(f"cores {os.cpu_count()}, load before {os.getloadavg()[0]:.1f}; milliseconds")
    print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD))
    for level in ("bubblewrap", "landlock", "process"):
        settings = SandboxSettings(
            level=level, workers=1, time_limit_s=1.0, memory_mb=256, max_file_mb=4, max_output_kb=64
        )
        try:
            for kind in KINDS:
                cells = [min(row) for row in zip(*(
                    measure(settings, kind, arguments.count) for _ in range(arguments.repeats)
                ), strict=True)]  # fmt: skip
                print(f"| {level} | {kind} | " + " | ".join(f"{c:.1f}" for c in cells) + " |")
        except SandboxError as error:
            print(f"| {level} | {error} |" + " |" * (len(HEAD) - 2))
    print(f"load after {os.getloadavg()[0]:.1f}")


def measure(settings: SandboxSettings, kind: str, count: int) -> list[float]:
    """Return one row of figures."""
    box = Sandbox(settings, quiet=True)
    try:
        warm_ms(box, kind, 1)
        before = cpu_ms(box)
        times = warm_ms(box, kind, count)
        spent = (cpu_ms(box) - before) / (count + 2)
    finally:
        box.close()
    return [
        cold_ms(settings), min(times), median(times), quantiles(times, n=10)[-1], spent,
        batch_ms(settings, kind, count, 1), batch_ms(settings, kind, count, 2),
    ]  # fmt: skip


def cpu_ms(box: Sandbox) -> float:
    """Return the CPU time so far of this process, the fork servers and the programs they buried."""
    ticks = 0
    for i, seat in enumerate(box._seats):
        if seat.worker is not None:
            words = Path(f"/proc/{server(box, i)}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, words[11:15]))
    return 1000 * (time.process_time() + ticks / os.sysconf("SC_CLK_TCK"))


if __name__ == "__main__":
    main()
