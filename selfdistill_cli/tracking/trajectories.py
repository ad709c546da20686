"""Sampled trajectories as JSON lines that a person can read, with the credit of every token."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from selfdistill_cli.core.disk import replace_file
from selfdistill_cli.core.types import Group, Sample, Score, Trajectory
from selfdistill_cli.tracking.files import plain

Decode = Callable[[Sequence[int]], str]

DIGITS = 4
LONGEST_TEXT = 200
"""Characters kept of each text in an outcome; the answer itself is never cut."""


def write_trajectories(path: Path, groups: Sequence[Group], decode: Decode, limit: int) -> None:
    """Write at most `limit` lines, whole groups first, so that siblings can be compared.

    `decode` turns ids into text. A demonstration is a line without score. The columns of `credit`
    are named by `credit_columns`: the token, its advantage, and its weight (1 if no part gave
    one; one column per loss term that has weights of its own). `privileged` is the text that each
    view saw beyond the student's prompt.
    """
    records = (record for group in groups for record in _records(group, decode))
    lines = [json.dumps(plain(r), ensure_ascii=False) + "\n" for r in islice(records, limit)]
    # A lone surrogate becomes its JSON escape, so that no text can keep a file from being written.
    replace_file(Path(path), "".join(lines).encode(errors="backslashreplace"))


def _records(group: Group, decode: Decode) -> Iterator[dict[str, Any]]:
    by_sibling: dict[int, list[Sample]] = {}
    for sample in group.samples:
        by_sibling.setdefault(sample.sibling, []).append(sample)
    if not group.trajectories:
        yield from (_demonstration(group.task.id, sample, decode) for sample in group.samples)
    for trajectory, score in zip(group.trajectories, group.scores, strict=True):
        samples = by_sibling.get(trajectory.sibling, [])
        yield {**_episode(trajectory, score, decode), **_credit(samples, decode)}


def _episode(trajectory: Trajectory, score: Score, decode: Decode) -> dict[str, Any]:
    turns = [
        {
            "text": turn.text,
            "finish": turn.generation.finish.value,
            "observation": [message["content"] for message in turn.observation],
        }
        for turn in trajectory.turns
    ]
    return {
        "task": trajectory.task.id,
        "sibling": trajectory.sibling,
        "reward": _rounded(score.total),
        "success": _rounded(score.success),
        "parts": {name: _rounded(value) for name, value in score.parts.items()},
        "missing": list(score.missing),
        "stop": trajectory.stop.value,
        "policy_version": trajectory.policy_version,
        "prompt": decode(trajectory.turns[0].prompt_ids) if trajectory.turns else "",
        "turns": turns,
        "outcome": {name: _short(value) for name, value in trajectory.outcome.items()},
    }


def _demonstration(task_id: str, sample: Sample, decode: Decode) -> dict[str, Any]:
    prompt = decode([int(i) for i in sample.token_ids[: sample.num_prompt_tokens]])
    answer = decode([int(i) for i in sample.token_ids[sample.action_mask]])
    turns = [{"text": answer}]
    return {"task": task_id, "prompt": prompt, "turns": turns, **_credit([sample], decode)}


def _credit(samples: Sequence[Sample], decode: Decode) -> dict[str, Any]:
    terms = sorted({name for sample in samples for name in sample.weights})
    names = [f"weight of {term}" for term in terms] or ["weight"]
    rows = [row for sample in samples for row in _tokens(sample, terms, decode)]
    views = {
        name: view.privileged
        for sample in samples
        for name, view in sample.views.items()
        if view.privileged
    }
    credit = {"credit_columns": ["token", "advantage", *names], "credit": rows}
    return {**credit, "privileged": views} if views else credit


def _tokens(sample: Sample, terms: Sequence[str], decode: Decode) -> Iterator[list[Any]]:
    ones = np.ones(len(sample.token_ids), np.float32)
    weights = [sample.weights.get(term, ones) for term in terms] or [ones]
    for t in np.flatnonzero(sample.action_mask):
        token_id = int(sample.token_ids[t])
        advantage = None if sample.advantages is None else _rounded(sample.advantages[t])
        # Special tokens have no text; an empty string would hide which one it was.
        yield [decode([token_id]) or f"<{token_id}>", advantage, *(_rounded(w[t]) for w in weights)]


def _rounded(value: Any) -> float | None:
    return None if value is None else round(float(value), DIGITS)


def _short(value: Any) -> Any:
    """One thing that an environment knows: short texts, numbers, and lists counted by status."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST_TEXT else f"{value[:LONGEST_TEXT]}…"
    if isinstance(value, Mapping):
        return {name: _short(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        if value and all(isinstance(item, Mapping) and "status" in item for item in value):
            return dict(sorted(Counter(str(item["status"]) for item in value).items()))
        return [_short(item) for item in value[:10]]
    return value
