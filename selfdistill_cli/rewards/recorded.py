"""Scores that were given before, by people for example, to exactly these answers."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from selfdistill_cli.core.errors import DataError, did_you_mean
from selfdistill_cli.core.texts import decoded
from selfdistill_cli.core.types import Trajectory
from selfdistill_cli.rewards.errors import Refused, read_number
from selfdistill_cli.rewards.outcomes import MASKED, answer_of, each, program_of
from selfdistill_cli.rewards.settings import RecordedComponent

KEYS = ("task", "score", "text", "program", "sha256", "note")
TEXTS = ("text", "program", "sha256")
SHA256 = re.compile(r"[0-9a-f]{64}")
EXPECTED = 'expected {"task": "...", "program": "...", "score": 0.5}'


class Recorded:
    """Looks an answer up by task and by its exact program or text."""

    def __init__(self, settings: RecordedComponent) -> None:
        """Read the file; raises DataError that names the line."""
        self._scores = read_scores(Path(settings.path))
        self._unrated = MASKED if settings.unrated is None else settings.unrated

    def values(self, trajectories: Sequence[Trajectory]) -> list[Any]:
        """One recorded score per trajectory, the default for those without one."""
        return each(self._value, trajectories)

    def _value(self, trajectory: Trajectory) -> Any:
        for text in (program_of(trajectory), answer_of(trajectory)):
            score = self._scores.get((trajectory.task.id, digest(text)))
            if score is not None:
                return score
        return self._unrated


def digest(text: str) -> str:
    """SHA-256 of a text, as the file may have it."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def read_scores(path: Path) -> dict[tuple[str, str], float]:
    """Scores by task and digest; raises DataError."""
    try:
        with path.open("rb") as file:  # "\n" alone ends a line: others may stand in a text
            lines = [decoded(raw, f"{path}:{n}", str(path)) for n, raw in enumerate(file, 1)]
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    scores: dict[tuple[str, str], float] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        key, score = _record(line, f"{path}:{number}")
        if scores.setdefault(key, score) != score:
            raise DataError(
                f"{path}:{number}: task {key[0]} has another score, {scores[key]:g}, for the same "
                "answer above; keep one of them, or their mean"
            )
    if not scores:
        raise DataError(f"{path}: holds no line; {EXPECTED} on each")
    return scores


def _record(line: str, where: str) -> tuple[tuple[str, str], float]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: no JSON ({error}); {EXPECTED}") from error
    if not isinstance(record, dict):
        raise DataError(f"{where}: no JSON object; {EXPECTED}")
    for key in record:
        if key not in KEYS:
            raise DataError(
                f"{where}: there is no field '{key}'{did_you_mean(key, KEYS)} "
                f"(known: {', '.join(KEYS)})"
            )
    named = [key for key in TEXTS if isinstance(record.get(key), str)]
    if not isinstance(record.get("task"), str) or len(named) != 1:
        raise DataError(f"{where}: needs task and one of {', '.join(TEXTS)} as texts; {EXPECTED}")
    return (record["task"], _key(named[0], record[named[0]], where)), _score(record, where)


def _score(record: dict[str, Any], where: str) -> float:
    value = record.get("score")
    if isinstance(value, bool):
        found = json.dumps(value)
        raise DataError(f"{where}: score: found {found}, expected a finite number: 1 or 0")
    try:
        return read_number(value)
    except Refused as error:
        raise DataError(f"{where}: score: found {error.found}, expected a finite number") from error


def _key(name: str, text: str, where: str) -> str:
    """The digest that a line means."""
    if name != "sha256":
        return digest(text)
    key = text.strip().lower()
    if not SHA256.fullmatch(key):
        raise DataError(
            f"{where}: sha256: found '{text:.70}' ({len(text)} characters), expected 64 "
            "hexadecimal digits, or the text itself as program or text"
        )
    return key
