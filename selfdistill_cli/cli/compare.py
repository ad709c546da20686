"""`selfdistill compare RUN...`: methods side by side, with intervals over seeds and tasks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from selfdistill_cli.core.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from selfdistill_cli.analysis.tables import Table

HELP = """\
usage: selfdistill compare RUN [RUN ...] [root=runs] [--baseline NAME] [--out DIR] [--partial]

RUN is a run directory, the name of a run under `root`, or a glob in quotes. Runs with the same
method and settings are seeds of one group; all runs must have been measured on the same panel.

  root=DIR         folder of all runs (default: runs)
  --baseline NAME  the method that the others are compared with (default: grpo, if it is there)
  --out DIR        where compare.md, compare.json, compare.csv and curves.png are written
                   (default: ROOT/compare/<methods>_<hash>)
  --partial        take in runs that are unfinished or partly unreadable

examples:
  selfdistill compare gear_0 gear_1 grpo_0 grpo_1
  selfdistill compare 'cmp_*' --baseline ppo --out report
"""

SETTINGS = ("root", "out", "baseline")
"""What takes a value, as `--out DIR`, `--out=DIR` or `out=DIR`."""

FLAGS = ("--root", "--out", "--baseline", "--partial", "--help")


@dataclass(kw_only=True)
class CompareArguments:
    """A command line of `selfdistill compare`, taken apart."""

    runs: list[str] = field(default_factory=list)
    """Paths, names and globs."""
    root: str = "runs"
    """Folder of all runs."""
    out: str | None = None
    """Where the files are written."""
    baseline: str | None = None
    """The method that the others are compared with."""
    partial: bool = False
    """Whether unfinished runs are taken in."""


def main(argv: Sequence[str]) -> int:
    """Run the command line of `selfdistill compare`; return its exit code."""
    if not argv or "-h" in argv or "--help" in argv:
        print(HELP, end="")
        return 0 if argv else UserError.exit_code
    arguments = parse(argv)

    from selfdistill_cli.analysis.comparison import compare
    from selfdistill_cli.analysis.report import default_folder, write_report
    from selfdistill_cli.analysis.selection import find_runs, usable_runs
    from selfdistill_cli.analysis.tables import facts, tables

    paths = find_runs(arguments.runs, arguments.root)
    runs, notes = usable_runs(paths, arguments.partial)
    comparison = compare(runs, arguments.baseline, notes)
    folder = Path(arguments.out) if arguments.out else default_folder(arguments.root, comparison)
    written = write_report(comparison, folder)
    for table in tables(comparison):
        show(table)
    print("\n".join(facts(comparison)))
    print(f"written: {folder}: {', '.join(path.name for path in written)}")
    return 0


def parse(argv: Sequence[str]) -> CompareArguments:
    """Take a command line apart; raises UserError for an unknown word or a missing value."""
    found = CompareArguments()
    words = iter(argv)
    for word in words:
        key, equals, value = word.partition("=")
        name, dashed = key.removeprefix("--"), key.startswith("--")
        if word == "--partial":
            found.partial = True
        elif name in SETTINGS and (equals or dashed):
            setattr(found, name, value if equals and value else _next(key, equals, words))
        elif word.startswith("-"):
            raise UserError(f"compare has no flag {key}{did_you_mean(key, FLAGS)}")
        elif equals and (near := did_you_mean(key, SETTINGS)):
            raise UserError(f"compare has no argument '{key}'{near}")
        else:
            found.runs.append(word)
    if not found.runs:
        raise UserError("expected at least one RUN, got none; see selfdistill compare --help")
    return found


def _next(key: str, equals: str, words: Iterator[str]) -> str:
    value = None if equals else next(words, None)
    if not value or value.startswith("--"):
        raise UserError(f"{key}: expected a value after it, got {value or 'nothing'}")
    return value


def show(table: Table) -> None:
    """Print a table: drawn on a terminal, plain columns elsewhere."""
    from selfdistill_cli.analysis.tables import as_text

    if not sys.stdout.isatty():
        print(as_text(table) + "\n")
        return
    from rich.console import Console
    from rich.table import Table as Drawn
    from rich.text import Text

    drawn = Drawn(title=table.title, title_justify="left")
    for name in table.header:
        drawn.add_column(name)
    for row in table.rows:
        # Intervals stand in brackets, which rich would read as styles.
        drawn.add_row(*(Text(cell) for cell in row))
    Console().print(drawn)
