"""`selfdistill sweep WORD DIR`: a sweep after `train -m` has started it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from selfdistill_cli.core.errors import ConfigError, UserError, did_you_mean

HELP = """\
usage: selfdistill sweep status DIR               one row for each cell; works while it runs
       selfdistill sweep resume DIR               the same as the command that started it, again
       selfdistill sweep retry DIR [WHICH ...]    start cells again that ended: failed (the
                                                  default), nan, invalid, cancelled, or their names
       selfdistill sweep cancel DIR [NAME ...]    stop cells with a checkpoint, or all that are left
       selfdistill sweep report DIR [OUT]         tables and pictures, in DIR/report

DIR is the directory of a sweep, runs/multirun/NAME, or its NAME. A sweep is started with
`selfdistill train -m KEY=A,B`.

examples:
  selfdistill sweep status method-seed-1a2b3c
  selfdistill sweep retry runs/multirun/method-seed-1a2b3c failed nan
  selfdistill sweep cancel method-seed-1a2b3c gear-seed_1
"""
RETRIED = ("failed", "nan", "invalid", "cancelled", "pruned")


@dataclass(frozen=True, kw_only=True)
class SweepArguments:
    """A command line of `selfdistill sweep`, taken apart."""

    word: str
    """What to do."""
    folder: str
    """The directory, or a name."""
    names: tuple[str, ...]
    """Cells, or statuses."""


def main(argv: Sequence[str]) -> int:
    """Run the command line of `selfdistill sweep`; return its exit code."""
    if not argv or "-h" in argv or "--help" in argv:
        print(HELP, end="")
        return 0 if argv else UserError.exit_code
    arguments = parse(argv)
    return WORDS[arguments.word](find_sweep(arguments.folder), arguments.names)


def parse(argv: Sequence[str]) -> SweepArguments:
    """Take a command line apart; raises UserError."""
    word, *rest = argv
    if word not in WORDS:
        near = did_you_mean(word, WORDS)
        raise UserError(f"there is no 'sweep {word}'{near} (known: {', '.join(WORDS)})")
    flags = [argument for argument in rest if argument.startswith("-")]
    if flags:
        raise UserError(f"there is no flag {flags[0]}; see selfdistill sweep --help")
    if not rest:
        raise UserError(f"sweep {word}: expected the directory of a sweep")
    most = {"status": 1, "resume": 1, "report": 2}.get(word)
    if most is not None and len(rest) > most:
        wanted = "one directory" if most == 1 else "a directory and where to write"
        raise UserError(f"sweep {word}: expected {wanted}, got {', '.join(rest)}")
    return SweepArguments(word=word, folder=rest[0], names=tuple(rest[1:]))


def find_sweep(name: str) -> Path:
    """The directory of a sweep given by path or by name; raises ConfigError."""
    root = Path("runs", "multirun")
    for path in (Path(name), root / name):
        if (path / "sweep.json").is_file():
            return path
    known = sorted(path.parent.name for path in root.glob("*/sweep.json"))
    near = did_you_mean(name, known)
    raise ConfigError(
        f"'{name}' is no directory of a sweep and no sweep in {root}{near}; sweeps there: "
        f"{', '.join(known[-10:]) or 'none'}"
    )


def status(path: Path, names: Sequence[str]) -> int:
    """Print what is known now."""
    from selfdistill_cli.analysis.ledger import Ledger
    from selfdistill_cli.core.locks import holder_of
    from selfdistill_cli.sweeping import table
    from selfdistill_cli.sweeping.readings import Follower

    _ask_cluster(path)
    ledger = Ledger(path)
    plan, cells = ledger.plan(), ledger.cells()
    holder = holder_of(path / ".lock")
    rows: list[list[str]] = []
    for cell in cells.values():
        follower = Follower(path / cell.name, plan["metric"], table.total_steps(path, cell.name))
        follower.news()
        progress = f"{follower.step}/{follower.total_steps}" if follower.total_steps else "-"
        if cell.status == "running":
            seconds = cell.duration_s + max(0.0, time.time() - cell.time)
            rows.append(
                table.running_row(cell, follower, plan["objective"], plan["direction"], seconds)
            )
        else:
            rows.append(table.row(cell, progress, cell.objective, cell.duration_s))
    swept = [*table.axes_line(plan["axes"]), *table.intervals_line(plan.get("intervals", {}))]
    print("\n".join([f"sweep {path.name}", *swept, *table.lines(rows)]))
    print(table.counts(cells.values()))
    print(f"runs in process {holder}" if holder else "not running now")
    print("\n".join(table.failures(cells.values())))
    return 0


def resume(path: Path, names: Sequence[str]) -> int:
    """Continue with what is left."""
    from selfdistill_cli.sweeping.start import command_of, sweep

    return sweep(command_of(path))


def retry(path: Path, names: Sequence[str]) -> int:
    """Start ended cells again, and what is left besides."""
    from selfdistill_cli.analysis.ledger import Ledger
    from selfdistill_cli.sweeping.start import command_of, sweep

    _ask_cluster(path)
    cells = Ledger(path).cells()
    wanted = names or ("failed",)
    unknown = [name for name in wanted if name not in RETRIED and name not in cells]
    if unknown:
        near = did_you_mean(unknown[0], [*RETRIED, *cells])
        raise ConfigError(
            f"'{unknown[0]}' is no cell of {path.name} and none of {', '.join(RETRIED)}{near}"
        )
    chosen = [
        name for name, cell in cells.items()
        if cell.status in RETRIED and (name in wanted or cell.status in wanted)
    ]  # fmt: skip
    if not chosen:
        named = [f"{name} is {cells[name].status}" for name in wanted if name in cells]
        found = ", ".join(named) or f"no cell is {' or '.join(wanted)}"
        raise ConfigError(f"{path.name}: {found}; nothing to start again")
    return sweep(command_of(path), retried=chosen)


def cancel(path: Path, names: Sequence[str]) -> int:
    """Stop cells: through the process that runs the sweep, or in the ledger if there is none."""
    from selfdistill_cli.analysis.ledger import ENDED, Ledger
    from selfdistill_cli.core.locks import acquire, holder_of
    from selfdistill_cli.launching import slurm
    from selfdistill_cli.sweeping.requests import ALL, ask_to_cancel

    _ask_cluster(path)
    ledger = Ledger(path)
    cells = ledger.cells()
    unknown = [name for name in names if name not in cells]
    if unknown:
        near = did_you_mean(unknown[0], cells)
        raise ConfigError(f"{path.name} has no cell '{unknown[0]}'{near}")
    left = [name for name in names or cells if cells[name].status not in ENDED]
    if not left:
        raise ConfigError(f"{path.name}: nothing is left to cancel")
    holder = holder_of(path / ".lock")
    if holder is not None:
        ask_to_cancel(path, left if names else [ALL])
        print(f"asked process {holder}, which runs the sweep, to cancel: {', '.join(left)}")
        return 0
    with acquire(path / ".lock", "sweep"):
        for name in left:
            job = cells[name].job
            if job is not None:
                slurm.cancel(job)
            ledger.append(name, status="cancelled", time=time.time())
    print(f"cancelled: {', '.join(left)}")
    return 0


def report(path: Path, names: Sequence[str]) -> int:
    """Write tables and pictures."""
    from selfdistill_cli.analysis.sweep_report import report as write

    _ask_cluster(path)
    for file in write(path, Path(names[0]) if names else None):
        print(file)
    return 0


def _ask_cluster(path: Path) -> None:
    """Let the ledger know what became of jobs of Slurm, unless somebody else writes it now."""
    from selfdistill_cli.analysis.ledger import Ledger
    from selfdistill_cli.core.locks import acquire, holder_of

    ledger = Ledger(path)
    if holder_of(path / ".lock") is None and any(c.job for c in ledger.cells().values()):
        from selfdistill_cli.sweeping.cluster import refresh

        with acquire(path / ".lock", "sweep"):
            refresh(ledger)


WORDS: dict[str, Callable[[Path, Sequence[str]], int]] = {
    "status": status,
    "resume": resume,
    "retry": retry,
    "cancel": cancel,
    "report": report,
}
