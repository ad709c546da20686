"""Checkpoints: complete state, written aside, checksummed, renamed; newest and best kept."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from selfdistill_cli import __version__
from selfdistill_cli.core.disk import sync_directory, writing
from selfdistill_cli.core.errors import CheckpointError
from selfdistill_cli.training.disk_budget import check_room, folder_bytes
from selfdistill_cli.training.files import (
    WRITE_ERRORS,
    checksum,
    point,
    sync_file,
    write_json,
)
from selfdistill_cli.training.settings import CheckpointSettings

MANIFEST = "manifest.json"
STATE = "training_state.pt"
POLICY = "policy"
TEACHER = "teacher"
DIGITS = 6
"""Of the step in a folder's name."""
Save = Callable[[Path], None]


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One complete checkpoint on disk."""

    step: int
    """The step after which it was written."""
    path: Path
    """Its folder."""

    @property
    def policy(self) -> Path:
        """The policy in Hugging Face format."""
        return self.path / POLICY

    def state(self) -> dict[str, Any]:
        """Everything but the policy's weights."""
        try:
            return torch.load(self.path / STATE, map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, UnpicklingError) as error:
            raise CheckpointError(f"{self.path / STATE} cannot be read: {error}") from error


def folder_name(step: int) -> str:
    """Name of a step's folder; sorts by step."""
    return f"step_{step:0{DIGITS}d}"


def problem_with(path: Path) -> str | None:
    """Return what is wrong with a checkpoint folder, naming the file, or None if it is whole."""
    manifest = path / MANIFEST
    if not manifest.is_file():
        return f"{manifest} is missing: the checkpoint was not finished"
    try:
        listed = json.loads(manifest.read_bytes())
        step, files = listed["step"], dict(listed["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{manifest} cannot be read: {error}"
    if path.name[-DIGITS:].isdecimal() and step != int(path.name[-DIGITS:]):
        return f"{manifest} is that of step {step}, expected step {int(path.name[-DIGITS:])}"
    for name, expected in sorted(files.items()):
        file = path / name
        if not file.is_file():
            return f"{file} is missing"
        try:
            problem = _problem_with_file(file, expected["bytes"], expected["sha256"])
        except (KeyError, TypeError) as error:
            return f"{manifest} cannot be read: {error}"
        except OSError as error:
            return f"{file} cannot be read: {error.strerror}"
        if problem is not None:
            return problem
    return None


def _problem_with_file(file: Path, num_bytes: int, sha256: str) -> str | None:
    if file.stat().st_size != num_bytes:
        return f"{file} has {file.stat().st_size} bytes, expected {num_bytes}"
    if checksum(file) != sha256:
        return f"{file} was altered: its checksum differs from the manifest"
    return None


class Checkpoints:
    """The folder `checkpoints/` of one run."""

    def __init__(self, root: Path, settings: CheckpointSettings):
        self.root = root
        self.settings = settings

    def due(self, step: int, max_steps: int) -> bool:
        """Whether a step writes a checkpoint whatever happened in it."""
        return step == max_steps or (self.settings.every > 0 and step % self.settings.every == 0)

    def steps(self) -> list[int]:
        """Steps that have a folder, oldest first, whole or not."""
        folders = self.root.glob("step_??????") if self.root.is_dir() else []
        return sorted(int(path.name[5:]) for path in folders if path.name[5:].isdigit())

    def newest(self, warn: Callable[[str], None]) -> Checkpoint | None:
        """Return the newest whole checkpoint; damaged ones are named and set aside.

        Raises CheckpointError if there are checkpoints and none is whole.
        """
        problems: dict[int, str] = {}
        for step in reversed(self.steps()):
            path = self.root / folder_name(step)
            problem = problem_with(path)
            if problem is None:
                self._set_aside(problems, warn)
                self._relink(path)
                return Checkpoint(step=step, path=path)
            problems[step] = problem
        aside = sorted(self.root.glob("damaged_step_*"), reverse=True)
        found = [*problems.values(), *(problem_with(p) or f"{p} is whole again" for p in aside)]
        if found:
            raise CheckpointError(
                f"no whole checkpoint is left in {self.root}:\n"
                + "\n".join(found)
                + "\nNothing was deleted. Put a copy back as step_<n>, start anew with another "
                "run.name, or delete the run directory."
            )
        return None

    def _set_aside(self, problems: Mapping[int, str], warn: Callable[[str], None]) -> None:
        for step, problem in problems.items():
            aside = self.root / f"damaged_{folder_name(step)}"
            shutil.rmtree(aside, ignore_errors=True)
            (self.root / folder_name(step)).rename(aside)
            warn(f"checkpoint of step {step} is damaged: {problem}. It was moved to {aside}.")

    def _relink(self, newest: Path) -> None:
        """Let `latest` name the newest one, and drop a `best` that is gone."""
        latest, best = self.root / "latest", self.root / "best"
        if not latest.is_symlink() or os.readlink(latest) != newest.name:
            point(latest, newest.name)
        if best.is_symlink() and not best.exists():
            best.unlink()

    def rewind(self, step: int) -> Checkpoint:
        """Return a step's checkpoint and set later ones aside as `rewound_step_<n>`.

        Raises CheckpointError if there is no whole one of that step; then nothing was moved.
        """
        checkpoint = self.named(str(step), "resume.step")
        for later in [known for known in self.steps() if known > step]:
            aside = self.root / f"rewound_{folder_name(later)}"
            shutil.rmtree(aside, ignore_errors=True)
            (self.root / folder_name(later)).rename(aside)
        self._relink(checkpoint.path)
        return checkpoint

    def named(self, which: str, key: str = "checkpoint") -> Checkpoint:
        """Return `latest`, `best` or a step's checkpoint; raises CheckpointError.

        `key` is what the user typed it for.
        """
        link = self.root / which
        path = link.resolve() if which in {"latest", "best"} else self.root / _step_folder(which)
        if not path.is_dir():
            steps = ", ".join(map(str, self.steps())) or "none"
            marks = "latest, best or " if key == "checkpoint" else ""
            raise CheckpointError(
                f"{key}={which}: no such checkpoint in {self.root}; "
                f"expected {marks}one of the steps: {steps}"
            )
        problem = problem_with(path)
        if problem is not None:
            raise CheckpointError(f"{key}={which} is damaged: {problem}")
        # A copy of the run may hold folders `latest` and `best` in place of links.
        return Checkpoint(step=json.loads((path / MANIFEST).read_bytes())["step"], path=path)

    def save(
        self, step: int, folders: Mapping[str, Save], state: dict[str, Any], best_step: int
    ) -> Checkpoint:
        """Write a checkpoint, then move `latest` and `best`, then delete what is not kept.

        `folders` says how each model folder (`policy`, `teacher`) is written.

        A failure (a full disk, for example) leaves every earlier checkpoint untouched.
        """
        newest = [self.root / folder_name(known) for known in self.steps()[-1:]]
        check_room(self.root.parent, sum(folder_bytes(folder) for folder in newest))
        final = self.root / folder_name(step)
        aside = self.root / f".{final.name}.partial"
        shutil.rmtree(aside, ignore_errors=True)
        with writing(final, WRITE_ERRORS):
            try:
                self._write(aside, step, folders, state)
                shutil.rmtree(final, ignore_errors=True)
                aside.rename(final)
            except BaseException:
                shutil.rmtree(aside, ignore_errors=True)
                raise
            sync_directory(self.root)
            point(self.root / "latest", final.name)
            if (self.root / folder_name(best_step)).is_dir():
                point(self.root / "best", folder_name(best_step))
        self._prune(best_step)
        return Checkpoint(step=step, path=final)

    def _write(
        self, aside: Path, step: int, folders: Mapping[str, Save], state: dict[str, Any]
    ) -> None:
        for name, save in folders.items():
            (aside / name).mkdir(parents=True)
            save(aside / name)
        torch.save(state, aside / STATE)
        files = {}
        for file in sorted(p for p in aside.rglob("*") if p.is_file()):
            sync_file(file)
            name = str(file.relative_to(aside))
            files[name] = {"sha256": checksum(file), "bytes": file.stat().st_size}
        for folder in [*(aside / name for name in folders), aside]:
            sync_directory(folder)
        write_json(aside / MANIFEST, {"step": step, "version": __version__, "files": files})

    def _prune(self, best_step: int) -> None:
        for step in self.steps()[: -max(1, self.settings.keep)]:
            if step != best_step:
                shutil.rmtree(self.root / folder_name(step), ignore_errors=True)


def _step_folder(which: str) -> str:
    return folder_name(int(which)) if which.isdigit() else which
