"""Samples are token-exact; updates cover every sample once per epoch; padding is inactive."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfdistill_cli.batching.collate import collate, updates
from selfdistill_cli.batching.samples import (
    demonstration_sample,
    in_place_of,
    samples_of,
    with_prompt,
)
from selfdistill_cli.batching.settings import BatchSettings
from selfdistill_cli.core.types import (
    Finish,
    Generation,
    Sample,
    Stop,
    Task,
    Trajectory,
    Turn,
    ViewScores,
)


def generation(ids, hidden=True):
    values = np.arange(len(ids), dtype=np.float32)
    return Generation(
        action_ids=ids,
        logprobs=-values - 1,
        finish=Finish.STOP,
        hidden=np.stack([values, values + 10], axis=1) + 1 if hidden else None,
    )


def trajectory(turns, stop=Stop.DONE):
    return Trajectory(
        task=Task(id="t", messages=()),
        sibling=3,
        turns=tuple(
            Turn(prompt_ids=prompt, generation=generation(ids, hidden), text="")
            for prompt, ids, hidden in turns
        ),
        stop=stop,
        outcome={},
        policy_version=0,
    )


def test_turns_that_extend_each_other_are_one_sample():
    turns = [([1, 2], [3, 4], True), ([1, 2, 3, 4, 5], [6], True)]
    (sample,) = samples_of(trajectory(turns, Stop.MAX_TURNS))
    assert sample.token_ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert sample.action_mask.tolist() == [False, False, True, True, False, True]
    assert sample.turn_index.tolist() == [-1, -1, 0, 0, -1, 1]
    assert sample.sampled_logprobs.tolist() == [0, 0, -1, -2, 0, -1]
    assert sample.hidden.tolist() == [[0, 0], [0, 0], [1, 11], [2, 12], [0, 0], [1, 11]]
    assert (sample.num_prompt_tokens, sample.sibling, sample.truncated) == (2, 3, True)


def test_a_prompt_that_does_not_extend_starts_a_second_sample():
    turns = [([1, 2], [3, 4], True), ([1, 2, 4, 5], [6], False)]
    first, second = samples_of(trajectory(turns, Stop.MAX_TOKENS))
    assert first.token_ids.tolist() == [1, 2, 3, 4]
    assert second.token_ids.tolist() == [1, 2, 4, 5, 6]
    assert second.turn_index.tolist() == [-1, -1, -1, -1, 1]
    assert (first.truncated, second.truncated) == (False, True)
    assert (first.num_prompt_tokens, second.num_prompt_tokens) == (2, 4)
    assert first.hidden is not None
    assert second.hidden is None


def test_another_prompt_and_back():
    turns = [([1, 2], [3, 4], True), ([1, 2, 3, 4, 5], [6], True)]
    (sample,) = samples_of(trajectory(turns))
    viewed = with_prompt(sample, [9, 9, 9, 9])
    assert viewed.token_ids.tolist() == [9, 9, 9, 9, 3, 4, 5, 6]
    assert viewed.action_mask.tolist() == [False] * 4 + [True, True, False, True]
    assert viewed.turn_index.tolist() == [-1] * 4 + [0, 0, -1, 1]
    scores = np.array([0, 0, 0, 0, -3, -4, 0, -6], dtype=np.float32)
    assert in_place_of(sample, viewed, scores).tolist() == [0, 0, -3, -4, 0, -6]
    assert in_place_of(sample, with_prompt(sample, []), scores[4:]).tolist() == [
        0, 0, -3, -4, 0, -6,
    ]  # fmt: skip


def made(length, **fields) -> Sample:
    sample = demonstration_sample([1], list(range(2, length + 1)))
    return Sample(**{**sample.__dict__, **fields})


def test_demonstration():
    sample = demonstration_sample([7, 8], [5, 6])
    assert sample.token_ids.tolist() == [7, 8, 5, 6]
    assert sample.action_mask.tolist() == [False, False, True, True]
    assert sample.turn_index.tolist() == [-1, -1, 0, 0]
    assert sample.sampled_logprobs.tolist() == [0, 0, 0, 0]


def test_collate_pads_on_the_right_with_neutral_values():
    ones = np.ones(3, dtype=np.float32)
    short = made(2, sampled_logprobs=np.array([0, -5], dtype=np.float32))
    full = made(
        3,
        advantages=2 * ones,
        old_logprobs=-ones,
        weights={"distill": 3 * ones},
        views={"teacher": ViewScores(logprobs=-7 * ones)},
    )
    batch = collate([short, full], ["distill", "policy"], [])
    assert batch.token_ids.tolist() == [[1, 2, 0], [1, 2, 3]]
    assert batch.attention_mask.tolist() == [[True, True, False], [True] * 3]
    assert batch.action_mask.tolist() == [[False, True, False], [False, True, True]]
    assert batch.advantages.tolist() == [[0, 0, 0], [2, 2, 2]]
    assert batch.old_logprobs.tolist() == [[0, -5, 0], [-1, -1, -1]]
    assert batch.weights["distill"].tolist() == [[1, 1, 1], [3, 3, 3]]
    assert batch.weights["policy"].tolist() == [[1, 1, 1], [1, 1, 1]]
    assert collate([full]).views["teacher"].logprobs.tolist() == [[-7, -7, -7]]
    with pytest.raises(ValueError, match=r"teacher.*1 of 2"):
        collate([short, full])


def sizes(**changes) -> BatchSettings:
    base = {
        "tasks_per_step": 4,
        "epochs": 1,
        "mini_batches": 1,
        "micro_batch_rows": 4,
        "micro_batch_tokens": 40,
    }
    return BatchSettings(**{**base, **changes})


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(2, 15), max_size=20),
    epochs=st.integers(1, 3),
    mini_batches=st.integers(1, 6),
    rows=st.integers(1, 5),
    tokens=st.integers(1, 60),
)
def test_updates_cover_every_sample_once_per_epoch(lengths, epochs, mini_batches, rows, tokens):
    samples = [made(length) for length in lengths]
    chosen = sizes(
        epochs=epochs,
        mini_batches=mini_batches,
        micro_batch_rows=rows,
        micro_batch_tokens=tokens,
    )
    found = list(updates(samples, chosen, (0, "updates", 1)))
    per_epoch = min(mini_batches, len(samples))
    assert len(found) == epochs * per_epoch
    for epoch in range(epochs if samples else 0):
        part = found[epoch * per_epoch : (epoch + 1) * per_epoch]
        seen = [id(s) for update in part for micro in update for s in micro]
        assert sorted(seen) == sorted(map(id, samples))
        counts = [sum(map(len, update)) for update in part]
        assert max(counts) - min(counts) <= 1
    for micro in (micro for update in found for micro in update):
        longest = max(len(s.token_ids) for s in micro)
        assert micro
        assert len(micro) == 1 or (len(micro) <= rows and len(micro) * longest <= tokens)


def order(key, epochs=1):
    samples = [made(5, sibling=i) for i in range(12)]
    cut = sizes(epochs=epochs, mini_batches=3)
    return [[s.sibling for m in u for s in m] for u in updates(samples, cut, key)]


def test_the_order_is_keyed_by_step_and_epoch():
    assert order((0, "updates", 1)) == order((0, "updates", 1))
    assert order((0, "updates", 1)) != order((0, "updates", 2))
    both = order((0, "updates", 1), epochs=2)
    assert both[:3] == order((0, "updates", 1))
    assert both[3:] != both[:3]


def test_groups_stay_together_when_asked():
    samples = [made(5, sibling=i) for i in range(12)]
    groups = [i // 3 for i in range(12)]
    cut = sizes(mini_batches=2, micro_batch_rows=4)
    for update in updates(samples, cut, (0,), keep_together=groups):
        for micro in update:
            numbers = [s.sibling // 3 for s in micro]
            assert all(numbers.count(n) == 3 for n in numbers)
