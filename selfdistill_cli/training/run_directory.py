"""The run directory: one process at a time, configuration compared, every attempt recorded."""

from __future__ import annotations

import fcntl
import fnmatch
import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import yaml

from selfdistill_cli.core.errors import ConfigError, UserError
from selfdistill_cli.training.files import write_json, write_text
from selfdistill_cli.training.settings import ResumeSettings

MAY_CHANGE = ("run.*", "checkpoint.*", "resume.*", "tracker.*", "launcher.*", "guards.*")
"""Keys that may differ on resume: they change no number that was already computed."""

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "hydra-core", "omegaconf", "wandb")


class RunDirectory:
    """Opens `runs/<name>/`, holds its lock, and knows what is inside."""

    def __init__(self, path: Path):
        self.path = path
        self.attempt = 0
        self._lock: IO[str] | None = None

    def open(self, container: Mapping[str, Any], resume: ResumeSettings) -> None:
        """Create or re-open the directory.

        Raises ConfigError if resume.mode forbids it, if a key changed that may not change, or if
        another process holds the directory.
        """
        started = (self.path / "config.yaml").is_file()
        if resume.mode == "must" and not started:
            raise ConfigError(f"resume=must: there is no run to continue in {self.path}")
        if resume.mode == "never" and started:
            raise ConfigError(
                f"resume=never: {self.path} holds a run already; "
                "choose another run.name, or resume=auto to continue it"
            )
        self._make()
        self._acquire()
        try:
            if started:
                self._compare(container, resume)
            self._record(container)
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        try:
            (self.path / "logs").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"run.root: the run directory {self.path} cannot be made: {error.strerror}; "
                "expected a folder that can be written to"
            ) from error

    def _acquire(self) -> None:
        lock = (self.path / ".lock").open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            raise UserError(
                f"{self.path} is in use by process {lock.read().strip() or 'unknown'}; "
                "wait for it, or choose another run.name"
            ) from error
        lock.seek(0)
        lock.truncate()
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def close(self) -> None:
        """Give the directory back."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _compare(self, container: Mapping[str, Any], resume: ResumeSettings) -> None:
        before = self.config()
        allowed = (*MAY_CHANGE, *resume.allow)
        changed = [
            (key, old, new)
            for key, old, new in differences(before, container)
            if not any(fnmatch.fnmatchcase(key, pattern) for pattern in allowed)
        ]
        if not changed:
            return
        width = max(len(key) for key, _, _ in changed)
        table = "\n".join(f"  {key:<{width}}  {old!r} -> {new!r}" for key, old, new in changed)
        keys = ",".join(key for key, _, _ in changed)
        raise ConfigError(
            f"{self.path} was started with another configuration:\n{table}\n"
            f"Choose another run.name, or continue on purpose with 'resume.allow=[{keys}]'"
        )

    def _record(self, container: Mapping[str, Any]) -> None:
        attempts = [int(p.name[8:]) for p in (self.path / "logs").glob("attempt_*")]
        self.attempt = max(attempts, default=0) + 1
        logs = self.path / "logs" / f"attempt_{self.attempt}"
        logs.mkdir()
        text = yaml.safe_dump(dict(container), sort_keys=False)
        write_text(logs / "config.yaml", text)
        write_text(self.path / "config.yaml", text)
        write_text(self.path / "command.txt", shlex.join(sys.argv) + "\n")
        write_text(self.path / "environment.txt", _environment())
        write_text(self.path / "git.txt", _git_state())

    def config(self) -> dict[str, Any]:
        """The current configuration, as nested mappings."""
        return yaml.safe_load((self.path / "config.yaml").read_text())

    def identity(self) -> dict[str, Any]:
        """run.json: ids and status; made on first use."""
        path = self.path / "run.json"
        if path.is_file():
            return json.loads(path.read_text())
        return {"wandb_id": os.urandom(4).hex(), "status": "created"}

    def update_identity(self, **values: Any) -> None:
        """Change fields of run.json."""
        write_json(self.path / "run.json", {**self.identity(), **values})


def find_run(name: str, root: str) -> Path:
    """Return the directory of a run given by path or by name under `root`; raises ConfigError."""
    for path in (Path(name), Path(root) / name):
        if (path / "config.yaml").is_file():
            return path
    folder = Path(root)
    known = sorted(p.parent.name for p in folder.glob("*/config.yaml")) if folder.is_dir() else []
    listed = ", ".join(known[-10:]) or "none"
    raise ConfigError(f"'{name}' is no run directory and no run under {root}; runs there: {listed}")


def differences(before: Any, after: Any, prefix: str = "") -> list[tuple[str, Any, Any]]:
    """Leaves of two nested mappings that differ, as (dotted key, before, after)."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        keys = [*before, *(key for key in after if key not in before)]
        return [
            row
            for key in keys
            for row in differences(before.get(key), after.get(key), f"{prefix}{key}.")
        ]
    return [] if before == after else [(prefix.rstrip("."), before, after)]


def _environment() -> str:
    lines = [f"python {platform.python_version()}", f"platform {platform.platform()}"]
    for name in PACKAGES:
        try:
            lines.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            lines.append(f"{name} not installed")
    return "\n".join(lines) + "\n"


def _git_state() -> str:
    """Commit and changed files of the checkout that the command was given in, if there is one."""
    try:
        head = _git("rev-parse", "HEAD")
        return f"commit {head}{_git('status', '--short')}"
    except (OSError, subprocess.SubprocessError):
        return "not in a git checkout\n"


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], capture_output=True, text=True, check=True, timeout=10
    ).stdout
