"""The directory of a sweep: found again by what it sweeps, extended, held by one process.

    <run.root>/multirun/<sweep.name>/
      sweep.json ledger.jsonl      the plan, and what became of it (analysis/ledger.py)
      <cell>/                      run directories
      logs/<cell>.log              all that a cell's processes said
      jobs/<cell>.json ...         a cell as it is started, who watches it, how it ended
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from selfdistill_cli.analysis.ledger import Cell, Ledger
from selfdistill_cli.config.axes import Space
from selfdistill_cli.core.errors import ConfigError, DataError
from selfdistill_cli.core.locks import acquire
from selfdistill_cli.sweeping.naming import cell_name, sweep_name, unused
from selfdistill_cli.sweeping.proposals import Planned
from selfdistill_cli.training.run_directory import MAY_CHANGE
from selfdistill_cli.training.settings import TrainSettings

SWEEPS = "multirun"
FREE = tuple(pattern.partition(".")[0] for pattern in MAY_CHANGE)
"""First parts of keys that may change without making it another sweep, as for a run."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """What was typed: the same command again is the same sweep."""

    words: tuple[str, ...]
    """KEY=VALUE, swept ones among them."""
    config_dir: str | None
    """The user's folder."""
    config_name: str
    """The primary configuration."""


@dataclass(kw_only=True)
class SweepFolder:
    """An open directory; this process holds it until `close`."""

    path: Path
    """<run.root>/multirun/<name>."""
    root: str
    """run.root as it was typed."""
    ledger: Ledger
    """What became of the cells."""
    command: Command
    """What was typed last."""
    lock: IO[str]
    """Held."""
    cells: dict[str, Cell] = field(default_factory=dict[str, Cell])
    """All cells by name, as the ledger has them."""

    @property
    def name(self) -> str:
        """Its name under `multirun`."""
        return self.path.name

    def close(self) -> None:
        """Give the directory back."""
        self.lock.close()

    def change(self, name: str, **changed: Any) -> Cell:
        """Write what changed about a cell."""
        changed["time"] = time.time()
        self.ledger.append(name, **changed)
        self.cells[name] = replace(self.cells[name], **changed)
        return self.cells[name]

    def enter(self, planned: Sequence[Planned]) -> list[str]:
        """Names of cells, in order; those that the ledger does not have are added to it."""
        known = {frozenset(cell.values.items()): name for name, cell in self.cells.items()}
        names: list[str] = []
        new: list[Cell] = []
        for cell in planned:
            key = frozenset(cell.values.items())
            if key not in known:
                known[key] = name = unused(cell_name(cell.values), cell.values, self.cells)
                made = Cell(
                    name=name,
                    values=dict(cell.values),
                    run=str(self.path.absolute() / name),
                    log=str(self.path.absolute() / "logs" / f"{name}.log"),
                    time=time.time(),
                )
                self.cells[name] = made
                new.append(made)
            names.append(known[key])
        self.ledger.extend(new)
        return names


def open_folder(command: Command, space: Space, settings: TrainSettings) -> SweepFolder:
    """Find or make the directory of a sweep, and hold it.

    Raises UserError if another process holds it and ConfigError if it is another sweep's.
    """
    root = Path(settings.run.root) / SWEEPS
    identity = _identity(command, space, settings)
    chosen: str | None = settings.sweep.name  # pyright: ignore
    name = chosen or _same(root, identity, space) or sweep_name(
        [axis.key for axis in space.axes] + [i.key for i in space.intervals],
        {**identity, "values": {axis.key: sorted(axis.values) for axis in space.axes}},
    )
    path = root / name
    _make(path)
    lock = acquire(path / ".lock", "sweep.name")
    try:
        ledger = Ledger(path)
        before = ledger.plan() if (path / "sweep.json").is_file() else None
        if before is not None and before.get("identity") != identity:
            raise ConfigError(_another(path, before.get("identity") or {}, identity))
        folder = SweepFolder(
            path=path, root=settings.run.root, ledger=ledger, command=command, lock=lock,
            cells=ledger.cells(),
        )  # fmt: skip
        ledger.write_plan(_plan(name, command, space, settings, identity, before))
        _reopen(folder, before, settings)
        return folder
    except BaseException:
        lock.close()
        raise


def _identity(command: Command, space: Space, settings: TrainSettings) -> dict[str, Any]:
    """What makes two commands the same sweep, whatever values they give to the swept keys."""
    fixed = {
        key: text for key, text in space.fixed.items() if _first_part(key) not in FREE
    }
    intervals = {i.key: [i.low, i.high, *sorted(i.tags)] for i in space.intervals}
    own = None if command.config_dir is None else str(Path(command.config_dir).resolve())
    return {
        "fixed": fixed,
        "keys": sorted(axis.key for axis in space.axes),
        "intervals": intervals,
        "config_dir": own,
        "config_name": command.config_name,
        "kind": type(settings.sweep).__name__,
    }


def _first_part(key: str) -> str:
    return key.lstrip("+~").partition(".")[0].partition("/")[0].partition("@")[0]


def _same(root: Path, identity: Mapping[str, Any], space: Space) -> str | None:
    """An earlier sweep of the same keys whose cells are all among those that are asked for now."""
    allowed = {axis.key: set(axis.values) for axis in space.axes}
    for path in sorted(root.glob("*/sweep.json")):
        ledger = Ledger(path.parent)
        try:
            if ledger.plan().get("identity") != identity:
                continue
            cells = ledger.cells().values()
        except DataError:
            continue
        swept = ((key, text) for cell in cells for key, text in cell.values.items())
        if all(text in allowed[key] for key, text in swept if key in allowed):
            return path.parent.name
    return None


def _make(path: Path) -> None:
    try:
        for name in ("logs", "jobs"):
            (path / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"run.root: the directory {path} cannot be made: {error.strerror}; expected a folder "
            "that can be written to"
        ) from error


def _another(path: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    rows = [
        f"  {key}: {before.get(key)} -> {now.get(key)}"
        for key in now
        if before.get(key) != now.get(key)
    ]
    return "\n".join(
        [f"sweep.name: {path} holds another sweep:", *rows, "choose another sweep.name"]
    )


def _plan(
    name: str, command: Command, space: Space, settings: TrainSettings,
    identity: Mapping[str, Any], before: Mapping[str, Any] | None,
) -> dict[str, Any]:  # fmt: skip
    sweep: Any = settings.sweep
    axes: dict[str, list[str]] = dict((before or {}).get("axes", {}))
    for axis in space.axes:
        axes[axis.key] = list(dict.fromkeys([*axes.get(axis.key, []), *axis.values]))
    return {
        "name": name,
        "identity": identity,
        "words": list(command.words),
        "config_dir": command.config_dir,
        "config_name": command.config_name,
        "folder": os.getcwd(),
        "root": settings.run.root,
        "argv": sys.argv,
        "axes": axes,
        "intervals": identity["intervals"],
        "fixed": space.fixed,
        "metric": sweep.metric,
        "objective": sweep.objective,
        "direction": sweep.direction,
        "max_steps": settings.run.max_steps,
    }


def _reopen(
    folder: SweepFolder, before: Mapping[str, Any] | None, settings: TrainSettings
) -> None:
    """With more steps than before, what was done is not done any more."""
    if before is None or settings.run.max_steps <= int(before.get("max_steps") or 0):
        return
    for name, cell in folder.cells.items():
        if cell.status == "done" and "run.max_steps" not in cell.values:
            folder.change(name, status="pending", job=None)

