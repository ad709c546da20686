"""`selfdistill verify-resume`: is resuming exact with this very configuration?"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from selfdistill_cli.cli.arguments import parse
from selfdistill_cli.core.errors import ConfigError, UserError

FEWEST, DEFAULT = 2, 4

HELP = f"""\
usage: selfdistill verify-resume [steps=N] [KEY=VALUE ...] [--config-dir DIR]

Trains N steps (default {DEFAULT}) without a break; then, for every step but the last, trains again,
kills the run with SIGKILL once that step is logged, continues it, and compares every byte of the
state (weights, optimizer, slow copy, controllers, buffers), the metrics that no clock decides, and
the trajectories. Takes the overrides of `selfdistill train`. Nothing is kept.

examples:
  selfdistill verify-resume method=gear
  selfdistill verify-resume steps=6 method=step_kd method/source=replay batch.tasks_per_step=4

Exit codes: 0 every byte is equal, 1 something differs or a run failed, 2 the input was wrong.
"""


def main(argv: Sequence[str]) -> int:
    """Run the command line of `selfdistill verify-resume`; return its exit code."""
    if "-h" in argv or "--help" in argv:
        print(HELP, end="")
        return 0
    arguments = parse([word for word in argv if not word.startswith("steps=")])
    if arguments.dry_run or arguments.hydra_flags:
        raise ConfigError("verify-resume takes KEY=VALUE and --config-dir; other flags are train's")
    steps = num_steps([word for word in argv if word.startswith("steps=")])
    taken = [w for w in arguments.words if w.startswith(("run.root=", "run.name=", "resume"))]
    if taken:
        raise ConfigError(f"verify-resume makes runs of its own; leave out {taken[0]}")

    from selfdistill_cli.config import rules
    from selfdistill_cli.config.compose import compose

    rules.check(compose(arguments.words, arguments.config_dir, arguments.config_name).settings)
    words = [f"--config-name={arguments.config_name}", *arguments.words]
    if arguments.config_dir:
        words.append(f"--config-dir={arguments.config_dir}")
    with tempfile.TemporaryDirectory(prefix="verify_resume_") as folder:
        return rehearse(words, Path(folder), steps)


def rehearse(words: Sequence[str], folder: Path, steps: int) -> int:
    """Run everything and print a row as soon as it is known."""
    from selfdistill_cli.launching.verify_resume import Rehearsal

    rehearsal = Rehearsal(words, folder, steps)
    print(f"training {steps} steps without a break", flush=True)
    rehearsal.straight()
    different = 0
    for step in range(1, steps):
        verdict = rehearsal.killed_after(step)
        found = {part: where for part, where in verdict.differences.items() if where}
        equal = ", ".join(part for part in verdict.differences if part not in found)
        print(f"killed after step {step}: {'differs' if found else 'equal'} ({equal})", flush=True)
        for part, where in found.items():
            print(f"  {part}: first difference at {where}", flush=True)
        different += not verdict.exact
    total = steps - 1
    print(f"{total - different} of {total} continued runs equal the straight one, byte for byte")
    return 1 if different else 0


def num_steps(words: Sequence[str]) -> int:
    """What `steps=N` says, 4 without it; raises UserError."""
    if not words:
        return DEFAULT
    text = words[-1].partition("=")[2]
    if not text.isdecimal() or int(text) < FEWEST:
        raise UserError(f"steps: got '{text}', expected a whole number of at least {FEWEST}")
    return int(text)
