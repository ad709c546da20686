"""Suites of where samples come from: source, rollout engine, chat template."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from selfdistill_cli.core.protocols import Chat, GenerationRequest, RolloutEngine, Source
from selfdistill_cli.core.types import Finish, Generation, Group, Message, Sample
from selfdistill_cli.testing.companions import SmallWorkshop
from selfdistill_cli.testing.expecting import (
    expect,
    expect_members,
    expect_repeats,
    expect_resumes,
    expect_row,
    same,
    untouched,
)

WORKSHOPS = (
    SmallWorkshop(),
    SmallWorkshop(tasks_per_step=1, group_size=2),
    SmallWorkshop(tasks_per_step=4, group_size=1, num_tasks=50),
)


def check_source(make: Callable[[], Source]) -> None:
    """Raise AssertionError unless `make()` returns a new source that keeps its contract."""
    part = make()
    name = type(part).__name__
    expect_members(part, "groups", "state_dict", "load_state_dict")
    for workshop in WORKSHOPS:
        for step in (1, 2, 30):
            what = f"{name}.groups (step {step}, {workshop.tasks_per_step} tasks per step)"
            found = expect_repeats(make, lambda p, s=step, w=workshop: p.groups(w, s), what)
            expect(isinstance(found, list), f"{what}: expected a list, got {type(found).__name__}")
            expect(bool(found), f"{what}: there are no groups")
            for group in found:
                _expect_group(what, group)
        moving = make()
        taken = [[g.task.id for g in moving.groups(workshop, step)] for step in range(1, 9)]
        moves = any(other != taken[0] for other in taken[1:])
        expect(moves, f"{name}.groups gave the same tasks at steps 1 to 8; key them by the step")
        expect_resumes(make, lambda p, s, w=workshop: p.groups(w, s), (0, 1, 3), 6)


def _expect_group(what: str, group: Any) -> None:
    expect(isinstance(group, Group), f"{what}: expected core.types.Group, got {group!r}")
    paired = len(group.scores) == len(group.trajectories)
    expect(paired, f"{what}: {len(group.scores)} scores for {len(group.trajectories)} trajectories")
    rejected = {
        trajectory.sibling
        for trajectory, score in zip(group.trajectories, group.scores, strict=True)
        if score.total is None
    }
    for sample in group.samples:
        known = not group.trajectories or sample.sibling not in rejected
        expect(known, f"{what}: a rejected trajectory (score.total is None) has a sample")
        _expect_sample(what, sample)


def _expect_sample(what: str, sample: Sample) -> None:
    length, mask = len(sample.token_ids), sample.action_mask
    for name, kind in (("action_mask", "b"), ("turn_index", "i")):
        array = getattr(sample, name)
        shaped = array.shape == (length,) and array.dtype.kind == kind
        expect(shaped, f"{what}: {name} is {array.dtype} {array.shape}, expected ({length},)")
    marked = bool(((sample.turn_index >= 0) == mask).all())
    expect(marked, f"{what}: turn_index is not -1 exactly where action_mask is false")
    expect_row(f"{what}: sampled_logprobs", sample.sampled_logprobs, length, mask)
    expect(not mask[: sample.num_prompt_tokens].any(), f"{what}: the prompt has active tokens")
    expect(bool(mask.any()), f"{what}: a sample has no active token")


def check_rollout_engine(
    make: Callable[[], RolloutEngine],
    *,
    prompts: Sequence[Sequence[int]] = ((1, 2, 3), (4, 5), (1, 2, 3), (6, 7, 8, 9, 10)),
    weights: Callable[[], Iterable[Any]] = tuple,
) -> None:
    """Raise AssertionError unless `make()` returns an engine that keeps its contract.

    `prompts`: ids that the model has, some prompts equal. `weights()`: (name, tensor) pairs of the
    weights in force, which are loaded once more; nothing may change by that.
    """
    engine = make()
    expect_members(engine, "generate", "load_weights")
    requests = [GenerationRequest(prompt_ids=list(p), seed=100 + i) for i, p in enumerate(prompts)]

    def sample(rows: Sequence[GenerationRequest], **more: Any) -> list[Generation]:
        settings = {"max_new_tokens": 6, "temperature": 1.0, **more}
        with untouched("generate", requests):
            return engine.generate(rows, **settings)

    first = sample(requests)
    _expect_generations("generate", first, requests, 6)
    expect(sample([]) == [], "generate([]) did not return an empty list")
    ids = _ids(first)
    expect(_ids(sample(requests)) == ids, "generate: equal seeds gave other tokens")
    backwards = _ids(sample(requests[::-1]))[::-1]
    expect(backwards == ids, "generate: the order of the requests changed their tokens")
    alone = [_ids(sample([request]))[0] for request in requests]
    expect(alone == ids, "generate: the other requests changed a request's tokens")
    others = [GenerationRequest(prompt_ids=r.prompt_ids, seed=r.seed + 1000) for r in requests]
    expect(_ids(sample(others)) != ids, "generate: other seeds gave the same tokens everywhere")
    greedy = [_ids(sample(rows, temperature=0.0)) for rows in (requests, others)]
    expect(greedy[0] == greedy[1], "generate: at temperature 0 the seed changed the tokens")
    short = sample(requests, max_new_tokens=1)
    _expect_generations("generate (max_new_tokens=1)", short, requests, 1)
    _check_hidden(sample(requests, with_hidden=True), ids)
    engine.load_weights(weights(), version=1)
    expect(_ids(sample(requests)) == ids, "load_weights: the same weights gave other tokens")


def _expect_generations(what: str, found: Any, requests: Sequence[Any], longest: int) -> None:
    counts = f"{len(found)} answers for {len(requests)} requests"
    expect(len(found) == len(requests), f"{what}: {counts}")
    for generation in found:
        length = len(generation.action_ids)
        bounded = 1 <= length <= longest
        expect(bounded, f"{what}: {length} tokens, expected 1 to {longest} (the stop id included)")
        expect_row(f"{what}: logprobs", generation.logprobs, length)
        negative = bool((generation.logprobs <= 1e-6).all())
        expect(negative, f"{what}: a log-probability is above 0")
        whole = generation.finish is not Finish.LENGTH or length == longest
        expect(whole, f"{what}: Finish.LENGTH after {length} of {longest} tokens")
        expect(generation.hidden is None, f"{what}: hidden states although nobody asked for them")


def _check_hidden(found: Sequence[Generation], ids: Sequence[Any]) -> None:
    expect(_ids(found) == list(ids), "generate: with_hidden changed the tokens")
    for generation in found:
        if generation.hidden is None:
            continue
        shape, length = generation.hidden.shape, len(generation.action_ids)
        right = len(shape) == 2 and shape[0] == length
        right = right and bool(np.isfinite(generation.hidden).all())
        expect(right, f"generate: hidden is {shape}, expected finite ({length}, H)")


def _ids(generations: Sequence[Generation]) -> list[list[int]]:
    return [list(map(int, generation.action_ids)) for generation in generations]


def check_chat(
    make: Callable[[], Chat], *, texts: Sequence[str] = ("def f(xs)", "x", "two words\nand a line")
) -> None:
    """Raise AssertionError unless `make()` returns a chat template that keeps its contract.

    `texts`: answers that the tokenizer can write.
    """
    chat = make()
    expect_members(chat, "prompt_ids", "observation_ids", "answer_ids", "decode")
    expect(bool(chat.stop_ids), "stop_ids is empty: no generation would ever end by itself")
    ints = all(isinstance(i, int) for i in (*chat.stop_ids, chat.pad_id))
    expect(ints, "stop_ids and pad_id: expected whole numbers")
    messages = [Message(role="user", content=text) for text in texts]
    prompts = [_chat_ids(chat.prompt_ids([m]), "prompt_ids") for m in messages]
    with untouched("prompt_ids", messages):
        again = [chat.prompt_ids([message]) for message in messages]
    expect(same(again, prompts), "prompt_ids: the same messages gave other ids")
    for text in texts:
        answer = _chat_ids(chat.answer_ids(text), "answer_ids")
        ends = answer[-1] in chat.stop_ids
        expect(ends, f"answer_ids({text!r}) does not end with one of stop_ids")
        read = chat.decode(answer)
        expect(read == text, f"decode(answer_ids({text!r})) is {read!r}")
        _check_turn(chat, messages[0], text, messages[-1])


def _check_turn(chat: Chat, first: Message, text: str, second: Message) -> None:
    """Prompt, answer and observation, joined by ids, read like the rendered conversation."""
    observation = _chat_ids(chat.observation_ids([second], finished=True), "observation_ids")
    cut = _chat_ids(chat.observation_ids([second], finished=False), "observation_ids")
    ended = cut[-len(observation) :] == observation and len(cut) > len(observation)
    message = "observation_ids: after a cut answer the end-of-turn id comes first"
    expect(ended and cut[0] in chat.stop_ids, message)
    joined = [*chat.prompt_ids([first]), *chat.answer_ids(text), *observation]
    assistant = Message(role="assistant", content=text)
    rendered = chat.prompt_ids([first, assistant, second])
    equal = chat.decode(joined) == chat.decode(rendered)
    expect(equal, "prompt, answer and observation do not join to the rendered conversation")


def _chat_ids(ids: Any, what: str) -> list[int]:
    right = isinstance(ids, list) and bool(ids) and all(isinstance(i, int) for i in ids)
    expect(right, f"{what}: expected a list of whole numbers that is not empty, got {ids!r}")
    return ids
