"""The run directory: one process at a time, configuration compared, every attempt recorded."""

from __future__ import annotations

import fnmatch
import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import yaml

from selfdistill_cli.core.disk import writing
from selfdistill_cli.core.errors import CheckpointError, ConfigError
from selfdistill_cli.core.locks import acquire
from selfdistill_cli.core.secrets import masked_words
from selfdistill_cli.tracking.metrics_file import read
from selfdistill_cli.tracking.wandb_trial import current_trial
from selfdistill_cli.training.files import write_json, write_text
from selfdistill_cli.training.settings import ResumeSettings
from selfdistill_cli.training.surroundings import environment_text, git_state

MAY_CHANGE = (
    "run.*", "checkpoint.*", "resume.*", "tracker.*", "launcher.*", "guards.*", "sweep.*",
    "rollout.url", "rollout.model", "rollout.sync_folder", "rollout.wait_s", "rollout.timeout_s",
    "rollout.retries", "rollout.gpu_memory_utilization", "rollout.sleep_level",
    "teacher.url", "teacher.requests_at_once", "teacher.wait_s", "teacher.timeout_s",
    "teacher.retries",
)  # fmt: skip
"""Keys that may differ on resume: they change no number that was already computed."""

MOST_SHOWN = 8
"""Changed keys that are listed one by one."""


class RunDirectory:
    """Opens `runs/<name>/`, holds its lock, and knows what is inside."""

    def __init__(self, path: Path):
        self.path = path
        self.attempt = 0
        self._lock: IO[str] | None = None

    def open(self, container: Mapping[str, Any], resume: ResumeSettings) -> None:
        """Create or re-open the directory for an attempt.

        Raises ConfigError if resume.mode forbids it, if a key changed that may not change, or if
        another process holds the directory; CheckpointError if something in it was lost.
        """
        self._enter(container, resume, self._record)

    def prepare(self, container: Mapping[str, Any], resume: ResumeSettings) -> None:
        """The same for a run that another process will train: no attempt begins."""
        self._enter(container, resume, self._record_config)

    def _enter(
        self,
        container: Mapping[str, Any],
        resume: ResumeSettings,
        record: Callable[[Mapping[str, Any]], object],
    ) -> None:
        started = self._started()
        if resume.mode == "must" and not started:
            raise ConfigError(f"resume=must: there is no run to continue in {self.path}")
        if resume.mode == "never" and started:
            raise ConfigError(
                f"resume=never: {self.path} holds a run already; "
                "choose another run.name, or resume=auto to continue it"
            )
        self._make()
        try:
            self.hold()
            if started:
                self._compare(container, resume)
                check_history(self.path, self.config())
            record(container)
        except BaseException:
            self.close()
            raise

    def _started(self) -> bool:
        """Whether there was an attempt; a run that was only prepared has nothing to compare."""
        attempted = any((self.path / "logs").glob("attempt_*"))
        return (self.path / "config.yaml").is_file() and (
            attempted or (self.path / "metrics.jsonl").is_file()
        )

    def _make(self) -> None:
        try:
            (self.path / "logs").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"run.root: the run directory {self.path} cannot be made: {error.strerror}; "
                "expected a folder that can be written to"
            ) from error

    def hold(self) -> None:
        """Keep other processes out until `close`; raises UserError if one is in there."""
        self._lock = acquire(self.path / ".lock", "run.name")

    def close(self) -> None:
        """Give the directory back."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _compare(self, container: Mapping[str, Any], resume: ResumeSettings) -> None:
        allowed = (*MAY_CHANGE, *resume.allow)
        changed = [
            (key, old, new)
            for key, old, new in differences(self._of_last_attempt(), container)
            if not _named(key, allowed)
        ]
        if changed:
            raise ConfigError(_changes(self.path, changed))

    def _of_last_attempt(self) -> dict[str, Any]:
        """The configuration that made the newest numbers, whatever config.yaml was edited to.

        That is config.yaml where nothing but numbers was kept, or where the copy is damaged.
        """
        attempt = max(_attempts(self.path), default=0)
        copy = self.path / "logs" / f"attempt_{attempt}" / "config.yaml"
        try:
            found = yaml.safe_load(copy.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError):
            found = None
        return found if isinstance(found, dict) else self.config()

    def check_contents(self, contents: Mapping[str, str], resume: ResumeSettings) -> None:
        """Compare what keys point at with what it was when the first numbers were computed.

        `contents` are fingerprints by key, for example of the file that env.data names. Raises
        ConfigError for a change that resume.allow does not name.
        """
        before = self.identity().get("contents", {})
        if (self.path / "metrics.jsonl").is_file():
            for key, new in contents.items():
                allowed = any(fnmatch.fnmatchcase(key, pattern) for pattern in resume.allow)
                if before.get(key, new) != new and not allowed:
                    raise ConfigError(
                        f"{key}: content changed since {self.path} was started (SHA-256 "
                        f"{before[key][:12]} -> {new[:12]}). Put the old content back, choose "
                        f"another run.name, or continue on purpose with 'resume.allow=[{key}]'"
                    )
        if before != dict(contents):
            self.update_identity(contents={**before, **contents})

    def _record(self, container: Mapping[str, Any]) -> None:
        self.attempt = max(_attempts(self.path), default=0) + 1
        logs = self.path / "logs" / f"attempt_{self.attempt}"
        with writing(logs):
            logs.mkdir()
        write_text(logs / "config.yaml", self._record_config(container))
        environment = environment_text()
        write_text(logs / "environment.txt", environment)
        write_text(self.path / "environment.txt", environment)
        write_text(self.path / "command.txt", shlex.join(masked_words(sys.argv)) + "\n")
        write_text(self.path / "git.txt", git_state())

    def described(self) -> dict[str, Any]:
        """The configuration, and under `recorded` lines of what stands beside it, for copies."""
        places = [self.path / f"{name}.txt" for name in ("command", "environment", "git")]
        texts = {p.stem: p.read_text(encoding="utf-8") for p in places if p.is_file()}
        return {**self.config(), "recorded": {k: text.splitlines() for k, text in texts.items()}}

    def _record_config(self, container: Mapping[str, Any]) -> str:
        text = yaml.safe_dump(dict(container), sort_keys=False)
        write_text(self.path / "config.yaml", text)
        return text

    def config(self) -> dict[str, Any]:
        """The current configuration, as nested mappings; raises CheckpointError."""
        path = self.path / "config.yaml"
        try:
            found = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise _damaged(path, str(error), "logs/attempt_<n>/config.yaml is a copy") from error
        if not isinstance(found, dict):
            raise _damaged(path, "no settings in it", "logs/attempt_<n>/config.yaml is a copy")
        return found

    def identity(self) -> dict[str, Any]:
        """run.json: ids and status; made on first use. Raises CheckpointError."""
        path = self.path / "run.json"
        if path.exists():
            remedy = "delete it: the W&B copy then starts anew, the run itself goes on"
            try:
                found = json.loads(path.read_bytes())
            except (OSError, ValueError) as error:
                raise _damaged(path, str(error), remedy) from error
            if not isinstance(found, dict):
                raise _damaged(path, "found no JSON object", remedy)
            return found
        trial = current_trial()
        own = os.urandom(4).hex() if trial is None else trial.run_id
        return {"wandb_id": own, "status": "created"}

    def update_identity(self, **values: Any) -> None:
        """Change fields of run.json."""
        write_json(self.path / "run.json", {**self.identity(), **values})


def _attempts(path: Path) -> list[int]:
    """Numbers of the attempts of a run."""
    names = [folder.name[8:] for folder in (path / "logs").glob("attempt_*")]
    return [int(name) for name in names if name.isdecimal()]


def _named(key: str, patterns: Sequence[str]) -> bool:
    """Whether patterns name a key; `sweep.*` names the whole group, which an old run lacks, too."""
    return any(fnmatch.fnmatchcase(name, p) for name in (key, f"{key}.") for p in patterns)


def _damaged(path: Path, found: str, remedy: str) -> CheckpointError:
    return CheckpointError(f"{path} is damaged: {' '.join(found.split())}; {remedy}")


def check_history(path: Path, before: Mapping[str, Any]) -> None:
    """Raise CheckpointError if metrics.jsonl or all checkpoints of a run were taken away.

    `before` is the configuration of the last attempt: a run that was killed before its first
    checkpoint has lines, and starts over.
    """
    metrics, checkpoints = path / "metrics.jsonl", path / "checkpoints"
    remedy = f"Put it back, choose another run.name, or delete {path} to start over"
    saved = any(checkpoints.glob("*step_??????"))
    if saved and not metrics.is_file():
        raise CheckpointError(
            f"{metrics} is missing, although there are checkpoints in {checkpoints}. {remedy}"
        )
    if saved or not metrics.is_file():
        return
    last = max((line["step"] for line in read(metrics)), default=0)
    every = before.get("checkpoint", {}).get("every", 0)
    if last > every > 0:
        raise CheckpointError(
            f"{checkpoints} holds no checkpoint, although {metrics} has steps up to {last}. "
            f"{remedy}"
        )


def _changes(path: Path, changed: Sequence[tuple[str, Any, Any]]) -> str:
    """Say what changed; a long list, as of another method, is cut and its groups are named."""
    shown = changed[:MOST_SHOWN]
    width = max(len(key) for key, _, _ in shown)
    rows = [f"  {key:<{width}}  {old!r:.60} -> {new!r:.60}" for key, old, new in shown]
    keys = [key for key, _, _ in changed]
    if len(changed) > len(shown):
        rows.append(f"  and {len(changed) - len(shown)} more")
        keys = list(dict.fromkeys(f"{k.partition('.')[0]}.*" if "." in k else k for k in keys))
    table = "\n".join(rows)
    return (
        f"{path} was started with another configuration:\n{table}\n"
        f"Choose another run.name, or continue on purpose with 'resume.allow=[{','.join(keys)}]'"
    )


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
