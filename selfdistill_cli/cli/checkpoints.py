"""`selfdistill checkpoints RUN`: what is kept, whether it is whole, and room for more."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from selfdistill_cli.core.errors import UserError, did_you_mean

ACTIONS = ("list", "verify", "prune")
ASIDE = ("damaged_step_*", "rewound_step_*", "copy_of_*")
"""What other commands set aside and never delete."""

HELP = """\
usage: selfdistill checkpoints RUN [list | verify | prune [keep=N] [aside=true]]

RUN is a run directory, or the name of a run in ./runs.

  list      steps, sizes, which one is the latest and the best (default)
  verify    read every file and compare its checksum with the manifest; 1 if one is damaged
  prune     delete all but the newest N whole ones (default 1) and the best one; damaged ones are
            never counted as kept. aside=true deletes damaged_*, rewound_* and copy_of_* folders too

examples:
  selfdistill checkpoints gear-code-s0-1a2b3c
  selfdistill checkpoints runs/long verify
  selfdistill checkpoints runs/long prune keep=2
"""


def main(argv: Sequence[str]) -> int:
    """Run the command line of `selfdistill checkpoints`; return its exit code."""
    if not argv or "-h" in argv or "--help" in argv:
        print(HELP, end="")
        return 0 if argv else UserError.exit_code
    run, action, keep, aside = parse(argv)

    from selfdistill_cli.training.run_directory import find_run

    root = find_run(run, "runs") / "checkpoints"
    if action == "verify":
        return verify(root)
    if action == "prune":
        return prune(root, keep, aside)
    return show(root)


def parse(argv: Sequence[str]) -> tuple[str, str, int, bool]:
    """Return RUN, the action, keep and aside; raises UserError."""
    run, *rest = argv
    action, keep, aside = "list", 1, False
    for word in rest:
        key, equals, value = word.partition("=")
        if word in ACTIONS:
            action = word
        elif key == "keep" and equals and value.isdecimal() and int(value) > 0:
            keep = int(value)
        elif word in ("aside=true", "aside=false"):
            aside = value == "true"
        elif key in ("keep", "aside"):
            expected = "a whole number above 0" if key == "keep" else "true or false"
            raise UserError(f"{key}: got '{value}', expected {expected}")
        else:
            near = did_you_mean(word, ACTIONS)
            raise UserError(f"checkpoints has no action '{word}'{near} ({', '.join(ACTIONS)})")
    return run, action, keep, aside


def show(root: Path) -> int:
    """One line per checkpoint."""
    from selfdistill_cli.training.disk_budget import folder_bytes

    folders = sorted(p for kind in ("step_??????", *ASIDE) for p in root.glob(kind))
    if not folders:
        print(f"no checkpoints in {root}")
    for folder in folders:
        marks = [mark for mark in ("latest", "best") if (root / mark).resolve() == folder.resolve()]
        size = folder_bytes(folder) / 2**20
        print(f"{folder.name:<24} {size:10.1f} MiB  {' '.join(marks)}".rstrip())
    return 0


def verify(root: Path) -> int:
    """Check every file of every checkpoint; 1 if anything is damaged."""
    from selfdistill_cli.training.checkpoints import problem_with

    folders = sorted(root.glob("step_??????"))
    if not folders:
        print(f"no checkpoints in {root}")
    problems = {folder.name: problem_with(folder) for folder in folders}
    for name, problem in problems.items():
        print(f"{name}  {'whole' if problem is None else 'damaged: ' + problem}")
    return 1 if any(problems.values()) else 0


def prune(root: Path, keep: int, aside: bool) -> int:
    """Delete what is not kept; 1 if there is no whole checkpoint, then nothing is deleted."""
    from selfdistill_cli.training.checkpoints import problem_with
    from selfdistill_cli.training.disk_budget import folder_bytes

    folders = sorted(root.glob("step_??????"))
    whole = [folder for folder in folders if problem_with(folder) is None]
    if folders and not whole:
        print(f"no checkpoint in {root} is whole; nothing was deleted (see `verify`)")
        return 1
    best = (root / "best").resolve()
    kept = {folder.resolve() for folder in whole[-keep:]} | {best}
    doomed = [folder for folder in folders if folder.resolve() not in kept]
    if aside:
        doomed += [p for kind in ASIDE for p in root.glob(kind)]
    for folder in doomed:
        size = folder_bytes(folder) / 2**20
        shutil.rmtree(folder)
        print(f"deleted {folder.name}, {size:.1f} MiB")
    print(f"kept {', '.join(f.name for f in folders if f not in doomed) or 'none'}")
    return 0
