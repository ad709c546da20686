"""Step time of methods against GRPO, interleaved: `python tests/measure_overhead.py`.

All methods take the same steps in turn, in one process, on the same episodes: the learning rate is
so small that every method keeps sampling from the initial policy. Prints medians and ratios.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from selfdistill_cli.config.compose import compose
from selfdistill_cli.training.interrupts import Interrupts
from selfdistill_cli.training.loop import take_step
from selfdistill_cli.training.run_directory import RunDirectory
from selfdistill_cli.training.start import assemble, prepare_process

METHODS = ["grpo", "gear", "gear_paper", "sspo", "rlsd", "bcsd", "step_kd", "bidirectional", "ppo"]
PHASES = ("act", "judge", "learn", "follow", "step")


class Silent:
    """A display that shows nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--methods", nargs="*", default=METHODS)
    arguments = parser.parse_args()
    prepare_process(1)
    with tempfile.TemporaryDirectory() as folder, Interrupts(print) as interrupts:
        runs = {m: _assemble(m, Path(folder), interrupts) for m in arguments.methods}
        times: dict[str, list[dict[str, float]]] = {m: [] for m in runs}
        for step in range(1, arguments.steps + 1):
            for method, run in runs.items():
                times[method].append(take_step(run, step))
        for run in runs.values():
            run.workshop.env.close()
    _print(times)


def _assemble(method: str, folder: Path, interrupts: Interrupts) -> Any:
    words = [f"method={method}", "optim.lr=1e-12", "optim.value_lr=1e-12", "eval.every=0",
             "tracker=none", f"run.root={folder}", f"run.name={method}", "run.max_steps=1000",
             "checkpoint.every=1000", "run.trajectories_every=0"]  # fmt: skip
    settings = compose(words).settings
    directory = RunDirectory(folder / method)
    directory.path.mkdir(parents=True)
    return assemble(settings, directory, settings.env.build(), Silent(), interrupts)


def _print(times: dict[str, list[dict[str, float]]]) -> None:
    base = next(iter(times))
    print(f"| method | {' | '.join(f'{p} s' for p in PHASES)} | step / {base} (paired median) |")
    print("|---" * (len(PHASES) + 2) + "|")
    for method, rows in times.items():
        medians = [statistics.median(row[f"time/{p}_s"] for row in rows[2:]) for p in PHASES]
        pairs = zip(rows[2:], times[base][2:], strict=True)
        ratio = statistics.median(a["time/step_s"] / b["time/step_s"] for a, b in pairs)
        print(f"| {method} | {' | '.join(f'{x:.3f}' for x in medians)} | {ratio:.3f} |")


if __name__ == "__main__":
    main()
