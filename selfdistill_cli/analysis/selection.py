"""Which runs were meant, and which of them can be compared."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

from selfdistill_cli.analysis.grouping import identity
from selfdistill_cli.analysis.run_record import RunRecord, read_run
from selfdistill_cli.core.errors import DataError, UserError, did_you_mean


def find_runs(words: Sequence[str], root: str) -> list[Path]:
    """Directories of runs given by path, by name under `root` or by glob, each once, in order.

    Raises UserError for a word that means no run.
    """
    found: dict[Path, Path] = {}
    for word in words:
        for path in _meant(word, root):
            found.setdefault(path.resolve(), path)
    return list(found.values())


def is_run(path: Path) -> bool:
    """Whether a directory is that of a run."""
    return (path / "config.yaml").is_file()


def _meant(word: str, root: str) -> list[Path]:
    # A path comes before a name under root, and a name before a glob: names may hold brackets.
    places = [Path(word), Path(root) / word]
    for path in places:
        if is_run(path):
            return [path]
    if glob.has_magic(word):
        for path in places:
            hits = [Path(hit) for hit in sorted(glob.glob(str(path))) if is_run(Path(hit))]
            if hits:
                return hits
    raise UserError(_no_such_run(word, root, next((p for p in places if p.is_dir()), None)))


def _no_such_run(word: str, root: str, folder: Path | None) -> str:
    if folder is not None:
        inside = any(is_run(path) for path in folder.iterdir())
        remedy = f"for the runs inside it, give '{folder}/*'" if inside else "name a run directory"
        return f"'{word}' is a directory without config.yaml, so it is no run; {remedy}"
    known = sorted(p.parent.name for p in Path(root).glob("*/config.yaml"))
    kind = "matches no run" if glob.has_magic(word) else "is no run directory and no run"
    return (
        f"'{word}' {kind} under {root}{did_you_mean(word, known)}; "
        f"runs there: {', '.join(known[-10:]) or 'none'}"
    )


def usable_runs(paths: Sequence[Path], partial: bool) -> tuple[list[RunRecord], list[str]]:
    """Runs that can be compared, and a line for each one that is left out or not whole.

    With `partial`, unfinished runs and runs with unreadable parts stay in, if they were evaluated.
    Raises UserError for a run without evaluations, and if no run is left.
    """
    runs: list[RunRecord] = []
    notes: list[str] = []
    for path in paths:
        try:
            run = read_run(path)
        except DataError as error:
            notes.append(f"left out: {path.name}: {error}")
            continue
        reason = _not_whole(run)
        twin = next((r.name for r in runs if _same_seed(r, run)), None)
        if not run.evaluations and not run.problems:
            _check_evaluated(run)
        if not run.evaluations:
            notes.append(f"left out: {run.name}: no evaluation yet; {reason}")
        elif reason and not partial:
            notes.append(f"left out: {run.name}: {reason}; --partial takes it in")
        elif twin is not None:
            notes.append(f"left out: {run.name}: the same settings and seed as {twin}")
        else:
            runs.append(run)
            notes.extend([f"partial: {run.name}: {reason}"] if reason else [])
    if not runs:
        raise UserError("no run is left to compare\n" + "\n".join(notes))
    return runs, notes


def _check_evaluated(run: RunRecord) -> None:
    every = run.config["eval"]["every"]
    if every == 0 or run.status == "finished":
        raise UserError(
            f"{run.name}: it has no evaluations (eval.every={every}), and compare reads nothing "
            "else; train it with eval.every=10, say, or leave it out"
        )


def _not_whole(run: RunRecord) -> str:
    reasons = list(run.problems)
    if not run.finished:
        steps = run.config["run"]["max_steps"]
        reasons.append(f"not finished (status {run.status}, step {run.last_step} of {steps})")
    return "; ".join(reasons)


def _same_seed(one: RunRecord, other: RunRecord) -> bool:
    """Whether two runs repeat each other: counted twice, they would narrow every interval."""
    return one.seed == other.seed and identity(one) == identity(other)
