"""From words with -m to a sweep that runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from selfdistill_cli.analysis.ledger import Ledger
from selfdistill_cli.config import catalog
from selfdistill_cli.config.axes import Space, read_space
from selfdistill_cli.config.cells import Cells, Made
from selfdistill_cli.core.errors import ConfigError, did_you_mean
from selfdistill_cli.launching.settings import SlurmSettings
from selfdistill_cli.sweeping import cluster, table
from selfdistill_cli.sweeping.display import make_display
from selfdistill_cli.sweeping.engine import Engine
from selfdistill_cli.sweeping.folder import SWEEPS, Command, SweepFolder, open_folder
from selfdistill_cli.sweeping.processes import LocalStarter, Starter
from selfdistill_cli.sweeping.proposals import Proposer
from selfdistill_cli.sweeping.settings import SweepSettings
from selfdistill_cli.sweeping.slots import num_cores, slots_for, visible_gpus
from selfdistill_cli.tracking.metrics_file import read

PLAN_SHOWN = 30


def sweep(
    command: Command,
    retried: Sequence[str] = (),
    starter: Callable[[Path, SweepSettings], Starter] = LocalStarter,
) -> int:
    """Run what a command with -m asks for, or what is left of it. Returns the exit code.

    `retried` are names of ended cells that are started again; `starter` makes what starts cells.
    Raises errors of core.errors.
    """
    space, cells, made = planned(command)
    folder = open_folder(command, space, made.settings)
    try:
        cluster.check_over(folder.cells[name] for name in retried)
        for name in retried:
            folder.change(name, status="pending", error=None, job=None)
        return _run(folder, space, cells, made, starter)
    finally:
        folder.close()


def planned(command: Command) -> tuple[Space, Cells, Made]:
    """Read and check a command: axes, the maker of cells, and one of them. Raises ConfigError."""
    space = read_space(command.words, catalog.config_dirs(command.config_dir))
    cells = Cells(space, command.config_dir, command.config_name)
    made = cells.check()
    if not isinstance(made.settings.sweep, SweepSettings):
        raise ConfigError("sweep: expected one of the group's options, for example sweep=grid")
    made.settings.sweep.check(space)
    return space, cells, made


def _run(
    folder: SweepFolder,
    space: Space,
    cells: Cells,
    made: Made,
    starter: Callable[[Path, SweepSettings], Starter],
) -> int:
    settings = made.settings.sweep
    assert isinstance(settings, SweepSettings)
    later = getattr(made.settings.launcher, "starts_later", False)
    cluster.learn(folder)
    if not later:
        cluster.take_back(folder)
    folder.reopen()
    proposer: Proposer = settings.build(space, dict(folder.cells), folder.path)
    if later:
        return _on_cluster(folder, cells, made, proposer)
    folder.begin()
    folder.enter(proposer.planned())
    slots = slots_for(made.settings, num_cores(), visible_gpus())
    for line in _introduction(folder, slots.count, slots.note):
        print(line, flush=True)
    display = make_display(sys.stdout, settings)
    engine = Engine(
        folder=folder, settings=settings, make=cells.make, proposer=proposer,
        starter=starter(folder.path, settings), slots=slots, display=display,
    )  # fmt: skip
    try:
        code = engine.run()
    finally:
        display.close()
    for line in [*closing(folder, code), *proposer.report()]:
        print(line, flush=True)
    return code


def _on_cluster(folder: SweepFolder, cells: Cells, made: Made, proposer: Proposer) -> int:
    """Hand all cells to Slurm. Raises ConfigError for a search, and for another cluster."""
    launcher = made.settings.launcher
    if not isinstance(launcher, SlurmSettings):
        raise ConfigError(
            "launcher: a sweep starts its cells here (inline, local) or as one array of Slurm "
            "(slurm); this launcher submits single runs"
        )
    if not proposer.finished():
        raise ConfigError(
            "launcher=slurm: a search proposes by what came before, and an array is submitted at "
            "once; use sweep=grid, or give this command inside a job with launcher=inline"
        )
    folder.begin()
    folder.enter(proposer.planned())
    for line in _introduction(folder, launcher.jobs or len(folder.cells), ""):
        print(line, flush=True)
    code = cluster.submit(folder, cells.make, launcher)
    print("\n".join(closing(folder, code)))
    if any(cell.status in cluster.LEFT for cell in folder.cells.values()):
        print(f"selfdistill sweep status {folder.path} shows what becomes of them")
    return 1 if table.failures(folder.cells.values()) else 0


def _introduction(folder: SweepFolder, jobs: int, note: str) -> list[str]:
    """The plan, before anything runs."""
    plan = folder.ledger.plan()
    cells = list(folder.cells.values())
    rows = [table.row(c, "-", c.objective, c.duration_s) for c in cells[:PLAN_SHOWN]]
    more = len(cells) - PLAN_SHOWN
    return [
        f"sweep {folder.name}",
        f"directory {folder.path}",
        *table.axes_line(plan["axes"]),
        *table.intervals_line(plan.get("intervals", {})),
        *table.lines(rows),
        *([f"... and {more} more"] if more > 0 else []),
        f"{table.counts(cells)}; {jobs} at once",
        *([note] if note else []),
    ]


def closing(folder: SweepFolder, code: int) -> list[str]:
    """What came of the sweep."""
    cells = list(folder.cells.values())
    wrong = table.failures(cells)
    kinds = [kind for kind in table.WRONG if any(cell.status == kind for cell in cells)]
    which = "" if kinds == ["failed"] else f" {' '.join(kinds)}"
    remedy = f"selfdistill sweep retry {folder.path}{which}"
    again = "the same command, or selfdistill sweep resume, continues" if code == 75 else ""
    return [
        "",
        table.counts(cells) + (f": {again}" if again else ""),
        *wrong,
        *_unmeasured(folder),
        *([f"to start them again: {remedy}"] if wrong else []),
    ]


def _unmeasured(folder: SweepFolder) -> list[str]:
    """Say so if no cell has a value of the metric, and which is meant."""
    done = [cell for cell in folder.cells.values() if cell.status == "done"]
    if not done or any(cell.objective is not None for cell in done):
        return []
    metric = folder.ledger.plan()["metric"]
    metrics = [metric] if isinstance(metric, str) else metric
    logged = {key for line in read(folder.path / done[0].name / "metrics.jsonl") for key in line}
    return [
        f"sweep.metric: no cell has logged '{each}'"
        + (did_you_mean(each, logged) or "; eval/... need eval.every above 0")
        for each in metrics
        if each not in logged
    ]


def command_of(path: Path) -> Command:
    """The command of a sweep's directory; goes to the folder in which it was given.

    Raises DataError, ConfigError.
    """
    plan = Ledger(path).plan()
    path = path.resolve()
    if not Path(plan["folder"]).is_dir():
        raise ConfigError(f"{plan['folder']}, in which the sweep was started, does not exist")
    os.chdir(plan["folder"])
    if Path(plan["root"], SWEEPS, path.name).resolve() != path:
        raise ConfigError(
            f"{path} was {Path(plan['folder'], plan['root'], SWEEPS, path.name)} when it was "
            "started; move it back, or give the command again with another run.root"
        )
    words = [word for word in plan["words"] if not word.startswith("sweep.name=")]
    return Command(
        words=(*words, f"sweep.name={path.name}"),
        config_dir=plan["config_dir"],
        config_name=plan["config_name"],
    )
