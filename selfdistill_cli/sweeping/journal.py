"""`optuna.journal` in the directory of a sweep: a study that survives its process at any moment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import Study
from optuna.trial import FrozenTrial

from selfdistill_cli.core.disk import writing
from selfdistill_cli.core.errors import DataError

JOURNAL = "optuna.journal"


def open_study(folder: Path, directions: Sequence[str]) -> Study:
    """The study of a sweep whose directory this process holds; a new one if there is none.

    Raises DataError if the journal is damaged, RunError if it cannot be written.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    path = folder / JOURNAL
    _mend(path)
    try:
        storage = _storage(path)
        names = optuna.study.get_all_study_names(storage)
        if names:  # whatever the folder was called when it was made
            return optuna.load_study(study_name=names[0], storage=storage)
    except (ValueError, KeyError) as error:
        raise DataError(
            f"{path} cannot be read: {error}; expected lines that Optuna wrote; delete it, and the "
            "search is put together again from the ledger"
        ) from error
    return optuna.create_study(study_name=folder.name, storage=storage, directions=directions)


def rewrite(folder: Path, study: Study, trials: Sequence[FrozenTrial]) -> Study:
    """Replace the study by one with other trials, at once or not at all."""
    path = folder / JOURNAL
    aside = folder / f"{JOURNAL}.partial"
    aside.unlink(missing_ok=True)
    changed = optuna.create_study(
        study_name=study.study_name, storage=_storage(aside), directions=study.directions
    )
    for key, value in study.user_attrs.items():
        changed.set_user_attr(key, value)
    changed.add_trials(trials)
    os.replace(aside, path)
    return optuna.load_study(study_name=study.study_name, storage=_storage(path))


class Backend(JournalFileBackend):
    """Optuna's file, with our error when it cannot be written."""

    def __init__(self, path: Path):
        self.path = path
        with writing(path):
            super().__init__(str(path))

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append lines, synced; raises RunError."""
        with writing(self.path):
            super().append_logs(logs)


def _storage(path: Path) -> JournalStorage:
    # The lock of a process that was killed would be waited for: nobody else writes here now.
    Path(f"{path}.lock").unlink(missing_ok=True)
    return JournalStorage(Backend(path))


def _mend(path: Path) -> None:
    """Cut off a line that a crash left without its end: Optuna reads nothing behind it."""
    if not path.is_file():
        return
    with path.open("rb+") as file:
        data = file.read()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            file.truncate(whole)
