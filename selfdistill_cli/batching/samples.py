"""From turns to flat token sequences, exactly as the model saw and made them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from selfdistill_cli.core.types import FloatArray, IntArray, Sample, Stop, Trajectory, Turn

Scalar = TypeVar("Scalar", bound=np.generic)

TRUNCATED = (Stop.MAX_TURNS, Stop.MAX_TOKENS)


def samples_of(trajectory: Trajectory) -> tuple[Sample, ...]:
    """Join the turns of a trajectory into samples, without encoding any text again.

    A turn whose prompt does not extend the tokens so far (a template that strips earlier thinking)
    starts a new sample; usually there is one. Only the last one of a cut episode is `truncated`.
    """
    runs: list[list[tuple[int, Turn]]] = []
    seen: list[int] = []
    for index, turn in enumerate(trajectory.turns):
        prompt = list(turn.prompt_ids)
        if not runs or prompt[: len(seen)] != seen:
            runs.append([])
        runs[-1].append((index, turn))
        seen = [*prompt, *turn.generation.action_ids]
    cut = trajectory.stop in TRUNCATED
    return tuple(
        _joined(run, trajectory.sibling, truncated=cut and number == len(runs) - 1)
        for number, run in enumerate(runs)
    )


def demonstration_sample(
    prompt_ids: Sequence[int], answer_ids: Sequence[int], sibling: int = 0
) -> Sample:
    """A demonstrated answer as a sample: its ids count as actions, sampled by nobody."""
    ids = np.array([*prompt_ids, *answer_ids], dtype=np.int64)
    action_mask = np.zeros(len(ids), dtype=np.bool_)
    action_mask[len(prompt_ids) :] = True
    return Sample(
        token_ids=ids,
        action_mask=action_mask,
        turn_index=np.where(action_mask, 0, -1).astype(np.int64),
        sampled_logprobs=np.zeros(len(ids), dtype=np.float32),
        sibling=sibling,
        num_prompt_tokens=len(prompt_ids),
    )


def with_prompt(sample: Sample, prompt_ids: Sequence[int]) -> Sample:
    """Replace the tokens before the first assistant boundary; copy all later ids verbatim.

    The result is for scoring only: of the arrays it carries the ids, the mask, the turns and the
    recorded log-probabilities. `in_place_of` brings what was scored back to the sample's positions.
    """
    first, length = sample.num_prompt_tokens, len(prompt_ids)
    tail = slice(first, None)
    prompt = np.asarray(prompt_ids, dtype=np.int64)
    return Sample(
        token_ids=np.concatenate([prompt, sample.token_ids[tail]]),
        action_mask=np.concatenate([np.zeros(length, dtype=np.bool_), sample.action_mask[tail]]),
        turn_index=np.concatenate([np.full(length, -1, dtype=np.int64), sample.turn_index[tail]]),
        sampled_logprobs=np.concatenate(
            [np.zeros(length, dtype=np.float32), sample.sampled_logprobs[tail]]
        ),
        sibling=sample.sibling,
        num_prompt_tokens=length,
        truncated=sample.truncated,
    )


def in_place_of(
    sample: Sample, viewed: Sample, scores: npt.NDArray[Scalar]
) -> npt.NDArray[Scalar]:
    """Move [T'] scores of `viewed = with_prompt(sample, ...)` to the sample's T positions."""
    out = np.zeros((len(sample.token_ids), *scores.shape[1:]), dtype=scores.dtype)
    out[sample.num_prompt_tokens :] = scores[viewed.num_prompt_tokens :]
    return out


def _joined(run: Sequence[tuple[int, Turn]], sibling: int, truncated: bool) -> Sample:
    """One sample of turns that extend each other."""
    last = run[-1][1]
    ids: IntArray = np.array([*last.prompt_ids, *last.generation.action_ids], dtype=np.int64)
    turn_index = np.full(len(ids), -1, dtype=np.int64)
    logprobs = np.zeros(len(ids), dtype=np.float32)
    first_hidden = run[0][1].generation.hidden
    hidden: FloatArray | None = None
    if first_hidden is not None and all(t.generation.hidden is not None for _, t in run):
        hidden = np.zeros((len(ids), first_hidden.shape[1]), dtype=np.float32)
    for index, turn in run:
        start = len(turn.prompt_ids)
        place = slice(start, start + len(turn.generation.action_ids))
        turn_index[place] = index
        logprobs[place] = turn.generation.logprobs
        if hidden is not None:
            hidden[place] = turn.generation.hidden
    return Sample(
        token_ids=ids,
        action_mask=turn_index >= 0,
        turn_index=turn_index,
        sampled_logprobs=logprobs,
        sibling=sibling,
        num_prompt_tokens=len(run[0][1].prompt_ids),
        truncated=truncated,
        hidden=hidden,
    )
