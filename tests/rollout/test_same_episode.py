"""The same (seed, step, task, sibling) gives the same episode, whatever else is played with it.

Float32 sums depend on the shape of a batch, so that two ids may change places where the uniform
number lies on a boundary between them. Such a first difference must be shown to be one.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from exact_episodes import (
    ENVS,
    KEY,
    TOKENIZERS,
    Planned,
    episodes,
    limits,
    plan_of,
    policy_of,
    seeds_of,
    tasks_of,
)

from selfdistill_cli.core.protocols import GenerationRequest
from selfdistill_cli.core.seeds import stream
from selfdistill_cli.core.types import Trajectory
from selfdistill_cli.policies.causal import CausalPolicy
from selfdistill_cli.rollout.in_process import InProcessRollout
from selfdistill_cli.rollout.sampling import choose

NEAR = 1e-5
GROUP = 2
LIMIT = limits(max_new_tokens=60, max_turns=4, max_context_tokens=1000)
WAYS = {
    "backwards": ({}, "backwards"),
    "shuffled": ({}, "shuffled"),
    "one episode at a time": ({"max_live_tokens": 1}, "given"),
    "a few episodes at a time": ({"max_live_tokens": 900}, "shuffled"),
    "one row at a time": ({"max_batch_rows": 1}, "given"),
    "three rows at a time": ({"max_batch_rows": 3}, "backwards"),
    "rows dropped at once": ({"compact_fraction": 0.01}, "given"),
    "rows never dropped": ({"compact_fraction": 1.0}, "given"),
    "each task alone": ({}, "alone"),
}


def played(env, policy, tasks, group=GROUP, **changes):
    """Episodes by task and sibling; every second turn is valid, so that the worlds move."""
    limit = replace(LIMIT, **changes)
    plan = plan_of(env, policy, tasks, group)
    engine = Planned(policy, InProcessRollout(limit, policy), plan)
    found = episodes(env, policy, engine, limit, tasks, group)
    return {(t.task.id, t.sibling): t for t in found}


def in_order(env, policy, tasks, order, **changes):
    """The same, with the tasks in another order or each in a call of its own."""
    if order == "alone":
        alone = [played(env, policy, [task], **changes) for task in tasks]
        return {key: value for part in alone for key, value in part.items()}
    tasks = list(tasks)
    if order == "backwards":
        tasks.reverse()
    if order == "shuffled":
        random.Random(7).shuffle(tasks)
    return played(env, policy, tasks, **changes)


def cumulative(policy: CausalPolicy, ids) -> np.ndarray:
    """[V+1] where every id's share of [0, 1) begins after these ids, by a plain forward pass."""
    with torch.no_grad():
        logits = policy.backbone(torch.tensor([list(ids)]), logits_to_keep=1).logits[0, -1]
    sums = torch.log_softmax(logits.float(), -1).exp().cumsum(-1, dtype=torch.float64).numpy()
    return np.concatenate([[0.0], sums / sums[-1]])


def outside(shares: np.ndarray, index: int, uniform: float) -> float:
    """How far the uniform number lies outside an id's share; 0 inside."""
    return float(max(shares[index] - uniform, uniform - shares[index + 1], 0.0))


def near_ties(policy: CausalPolicy, a: Trajectory, b: Trajectory) -> int:
    """0 if the episodes are equal, 1 if they part at a near-tie; anything else fails."""
    seeds = seeds_of(a.task, a.sibling, len(a.turns))
    for seed, one, two in zip(seeds, a.turns, b.turns, strict=False):
        assert list(one.prompt_ids) == list(two.prompt_ids)
        first, second = (list(turn.generation.action_ids) for turn in (one, two))
        if first != second:
            both = enumerate(zip(first, second, strict=False))
            place = next((i for i, (x, y) in both if x != y), None)
            assert place is not None, "one turn is longer, though its ids begin like the other's"
            uniform = float(stream(seed).random(LIMIT.max_new_tokens)[place])
            shares = cumulative(policy, [*one.prompt_ids, *first[:place]])
            far = max(outside(shares, ids[place], uniform) for ids in (first, second))
            assert far < NEAR, f"token {place} differs, {far:.1e} from its share"
            return 1
        assert (one.text, one.observation) == (two.text, two.observation)
        np.testing.assert_allclose(one.generation.logprobs, two.generation.logprobs, atol=1e-4)
    assert len(a.turns) == len(b.turns)
    assert (a.stop, a.outcome) == (b.stop, b.outcome)
    return 0


def compared(policy, expected, found) -> int:
    assert found.keys() == expected.keys()
    return sum(near_ties(policy, expected[key], found[key]) for key in expected)


@pytest.mark.parametrize("env", ENVS)
def test_every_order_and_batch_gives_the_same_episodes(env):
    policy, tasks = policy_of("tiny"), tasks_of(env, 3)
    expected = played(env, policy, tasks)
    assert len({t.turns[0].generation.action_ids[0] for t in expected.values()}) > 1
    assert all(t.outcome.get("invalid_actions", 0) < len(t.turns) for t in expected.values())
    for changes, order in WAYS.values():
        found = in_order(env, policy, tasks, order, **changes)
        assert compared(policy, expected, found) <= 1


@pytest.mark.parametrize("way", WAYS)
def test_every_order_and_batch_with_trained_weights(way):
    policy, tasks = policy_of("shipped"), tasks_of("math", 4)
    changes, order = WAYS[way]
    expected = played("math", policy, tasks)
    found = in_order("math", policy, tasks, order, **changes)
    assert compared(policy, expected, found) <= 1


@pytest.mark.parametrize("way", WAYS)
def test_every_order_and_batch_with_a_large_vocabulary(way):
    policy, tasks = policy_of("qwen"), tasks_of("gymnasium", 2)
    changes, order = WAYS[way]
    expected = played("gymnasium", policy, tasks)
    found = in_order("gymnasium", policy, tasks, order, **changes)
    assert compared(policy, expected, found) <= 1


@pytest.mark.parametrize("env", ENVS)
def test_a_larger_group_begins_with_the_same_siblings(env):
    policy, tasks = policy_of("tiny"), tasks_of(env, 2)
    few, many = played(env, policy, tasks, 1), played(env, policy, tasks, 3)
    assert sum(near_ties(policy, few[key], many[key]) for key in few) <= 1
    assert len({tuple(t.turns[0].generation.action_ids) for t in many.values()}) > len(tasks)


def test_seed_step_task_and_sibling_all_count():
    policy, tasks = policy_of("tiny"), tasks_of("gymnasium", 2)
    found = []
    for key in (KEY, (4, *KEY[1:]), (*KEY[:2], 6)):
        engine = InProcessRollout(LIMIT, policy)
        found += episodes("gymnasium", policy, engine, LIMIT, tasks, GROUP, seed_key=key)
    said = {tuple(tuple(turn.generation.action_ids) for turn in t.turns) for t in found}
    assert len(said) == len(found) == 12


@pytest.mark.parametrize("name", [*TOKENIZERS, "shipped"])
def test_batches_move_the_boundaries_by_less_than_a_near_tie(name):
    """The two distributions of one state, alone and in a batch: where they differ, ids may too."""
    policy, tasks = policy_of(name), tasks_of("textgame", 4)
    prompts = [policy.chat.prompt_ids(task.messages) for task in tasks]
    requests = [
        GenerationRequest(prompt_ids=p, seed=i) for i, p in enumerate(prompts) for _ in range(3)
    ]
    engine = InProcessRollout(LIMIT, policy)
    options = {"max_new_tokens": 6, "temperature": 1.0, "with_hidden": True}
    together = engine.generate(requests, **options)
    weight, bias = policy.unembedding()
    widest, parted = 0.0, 0
    for request, one in zip(requests, together, strict=True):
        (alone,) = engine.generate([request], **options)
        assert alone.action_ids == one.action_ids
        hidden = [torch.from_numpy(h) for h in (alone.hidden, one.hidden)]
        with torch.no_grad():
            rows = [torch.nn.functional.linear(h[None], weight, bias) for h in hidden[0]]
            many = torch.nn.functional.linear(hidden[1], weight, bias)
        logits = torch.stack([torch.cat(rows), many]).float()
        sums = torch.log_softmax(logits, -1).exp().cumsum(-1, dtype=torch.float64)
        shares = sums / sums[..., -1:]
        widest = max(widest, float((shares[0] - shares[1]).abs().max()))
        for place in range(len(one.action_ids)):
            parted += _parts_at_a_tie(policy, request, one.action_ids, logits, shares, place)
    print(f"{name}: boundaries move by {widest:.1e} at most; {parted} ties made and recognised")
    assert widest < NEAR
    assert parted > 0


def _parts_at_a_tie(policy, request, ids, logits, shares, place) -> bool:
    """Put the uniform number between the two boundaries of an id: the choices part, narrowly."""
    one, two = shares[:, place]
    at = int((one - two).abs().argmax())
    uniform = ((one[at] + two[at]) / 2).reshape(1)
    chosen = [int(choose(row[place][None], uniform, 1.0)[0]) for row in logits]
    if chosen[0] == chosen[1]:
        return False
    plain = cumulative(policy, [*request.prompt_ids, *ids[:place]])
    assert max(outside(plain, index, float(uniform)) for index in chosen) < NEAR
    return True


def test_a_difference_that_is_no_tie_is_noticed():
    policy, tasks = policy_of("tiny"), tasks_of("gymnasium", 1)
    expected = played("gymnasium", policy, tasks)
    episode = expected[(tasks[0].id, 0)]
    turn = episode.turns[0]
    ids = list(turn.generation.action_ids)
    other = replace(turn, generation=replace(turn.generation, action_ids=[(ids[0] + 9) % 300]))
    wrong = replace(episode, turns=(other, *episode.turns[1:]))
    with pytest.raises(AssertionError, match="token 0 differs"):
        near_ties(policy, episode, wrong)
    with pytest.raises(AssertionError):
        near_ties(policy, episode, replace(episode, outcome={}))
    assert near_ties(policy, episode, episode) == 0
