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
from selfdistill_cli.sweeping.outcome import NOT_FINITE, finite
from selfdistill_cli.sweeping.proposals import Planned
from selfdistill_cli.sweeping.readings import Follower
from selfdistill_cli.training.run_directory import MAY_CHANGE
from selfdistill_cli.training.settings import TrainSettings

SWEEPS = "multirun"
NAMED = {"keys": "swept keys", "kind": "sweep", "config_dir": "--config-dir"}
"""Parts of what makes a sweep, as they are told."""
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
    plan: Mapping[str, Any]
    """What sweep.json will say."""
    before: Mapping[str, Any] | None
    """What it said when the directory was opened, None in a new one."""
    cells: dict[str, Cell] = field(default_factory=dict[str, Cell])
    """All cells by name, as the ledger has them."""

    @property
    def name(self) -> str:
        """Its name under `multirun`."""
        return self.path.name

    def close(self) -> None:
        """Give the directory back."""
        self.lock.close()

    def reopen(self) -> None:
        """With more steps than before, what was done is not done any more."""
        if self.before is None or self.plan["max_steps"] <= int(self.before.get("max_steps") or 0):
            return
        for name, cell in self.cells.items():
            if cell.status == "done" and "run.max_steps" not in cell.values:
                self.change(name, status="pending", job=None)

    def begin(self) -> None:
        """Write the plan, now that nothing refuses it."""
        self.ledger.write_plan(self.plan)
        if self.before is not None:
            _measure_anew(self, self.before)

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
        return SweepFolder(
            path=path, root=settings.run.root, ledger=ledger, command=command, lock=lock,
            plan=_plan(name, command, space, settings, identity, before), before=before,
            cells=ledger.cells(),
        )  # fmt: skip
    except BaseException:
        lock.close()
        raise


def _identity(command: Command, space: Space, settings: TrainSettings) -> dict[str, Any]:
    """What makes two commands the same sweep, whatever values they give to the swept keys."""
    fixed = {key: text for key, text in space.fixed.items() if _first_part(key) not in FREE}
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
    rows = [f"  {row}" for key in now for row in _differences(key, before.get(key), now.get(key))]
    return "\n".join(
        [f"sweep.name: {path} holds another sweep:", *rows, "choose another sweep.name"]
    )


def _differences(what: str, before: Any, now: Any) -> list[str]:
    """`optim.lr: not given -> 0.001`, one line for each key that is not the same."""
    if before == now:
        return []
    if not isinstance(before, dict) or not isinstance(now, dict):
        words = [" ".join(v) if isinstance(v, list) else str(v) for v in (before, now)]
        return [f"{NAMED.get(what, what)}: {words[0]} -> {words[1]}"]
    return [
        f"{key}: {before.get(key, 'not given')} -> {now.get(key, 'not given')}"
        for key in dict.fromkeys([*before, *now])
        if before.get(key) != now.get(key)
    ]


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


def _measure_anew(folder: SweepFolder, before: Mapping[str, Any]) -> None:
    """By another metric, cells that ended have another objective: no two are ever mixed."""
    plan = folder.plan
    if all(plan[key] == before[key] for key in ("metric", "objective", "direction")):
        return
    for name, cell in folder.cells.items():
        follower = Follower(Path(cell.run), plan["metric"], 0)
        follower.news()
        objective = follower.objective(plan["objective"], plan["direction"])
        changed: dict[str, Any] = {"objective": objective if finite(objective) else None}
        if cell.status in ("done", "nan") and cell.exit_code in (0, None):
            changed["status"] = "done" if finite(objective) else "nan"
            changed["error"] = None if finite(objective) else NOT_FINITE
        if any(getattr(cell, key) != value for key, value in changed.items()):
            folder.change(name, **changed)
