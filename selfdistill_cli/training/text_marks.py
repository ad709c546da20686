"""Marks on tokens that come from the text they spell: key tokens and starts of lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from selfdistill_cli.batching.spans import character_ends, first_tokens_of_lines, tokens_in
from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.core.needs import Needs
from selfdistill_cli.core.types import BoolArray, Group, Sample, Task

if TYPE_CHECKING:
    from selfdistill_cli.training.run import Run

Marker = Callable[[Task, str, Sequence[int]], list[bool]]


def with_text_marks(run: Run, groups: list[Group], needs: Needs) -> list[Group]:
    """Fill `Sample.key_tokens` and `Sample.line_starts` where a part needs them."""
    if "line_starts" in needs:
        groups = _marked(run, groups, "line_starts", _mark_lines)
    if "key_tokens" in needs:
        groups = _marked(run, groups, "key_tokens", _key_marker(run))
    return groups


def _mark_lines(task: Task, text: str, ends: Sequence[int]) -> list[bool]:
    return first_tokens_of_lines(text, ends)


def _key_marker(run: Run) -> Marker:
    key_spans: Any = getattr(run.workshop.env, "key_spans", None)
    if key_spans is None:
        raise ConfigError(
            "method.credit.targets=key_tokens: the environment names no key tokens; expected one "
            "with key_spans(task, text), such as env=code, or method.credit.targets=return_to_go"
        )
    return lambda task, text, ends: tokens_in(key_spans(task, text), ends)


def _marked(run: Run, groups: list[Group], field: str, mark: Marker) -> list[Group]:
    def fill(group: Group, sample: Sample) -> Sample:
        marks: dict[str, Any] = {field: _marks(run, group.task, sample, mark)}
        return replace(sample, **marks)

    return [replace(g, samples=tuple(fill(g, sample) for sample in g.samples)) for g in groups]


def _marks(run: Run, task: Task, sample: Sample, mark: Marker) -> BoolArray:
    """Mark the tokens of each turn by its text [T]."""
    out = np.zeros(len(sample.token_ids), dtype=np.bool_)
    chat = run.workshop.chat
    for turn in np.unique(sample.turn_index[sample.action_mask]):
        places = np.flatnonzero(sample.action_mask & (sample.turn_index == turn))
        ids = sample.token_ids[places].tolist()
        out[places] = mark(task, chat.decode(ids), character_ends(ids, chat.decode))
    return out
