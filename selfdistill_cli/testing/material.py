"""Small real objects: groups of siblings in every shape that a step can bring to a part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from selfdistill_cli.core.needs import DivergenceNeed
from selfdistill_cli.core.types import (
    Finish,
    FloatArray,
    Generation,
    Group,
    Sample,
    Score,
    Stop,
    Task,
    Trajectory,
    Turn,
    ViewScores,
)

HIDDEN = 8


def make_sample(rng: np.random.Generator, sibling: int, prompt: int, actions: int) -> Sample:
    """A sample of `prompt` + `actions` tokens with random log-probs and hidden states."""
    length = prompt + actions
    mask = np.arange(length) >= prompt
    hidden = rng.normal(size=(length, HIDDEN)).astype(np.float32) * mask[:, None]
    logprobs = np.where(mask, -rng.random(length), 0.0).astype(np.float32)
    return Sample(
        token_ids=rng.integers(1, 50, size=length),
        action_mask=mask,
        turn_index=np.where(mask, 0, -1).astype(np.int64),
        sampled_logprobs=logprobs,
        old_logprobs=logprobs,
        sibling=sibling,
        num_prompt_tokens=prompt,
        hidden=hidden.astype(np.float32),
        values=np.where(mask, rng.normal(size=length), 0.0).astype(np.float32),
    )


def make_trajectory(task: Task, samples: Sequence[Sample]) -> Trajectory:
    """A one-turn episode per sample, with the sample's own tokens."""
    turns = [_turn(s, s.num_prompt_tokens, len(s.token_ids)) for s in samples]
    return Trajectory(
        task=task, sibling=samples[0].sibling, turns=tuple(turns), stop=Stop.DONE, outcome={},
        policy_version=0,
    )  # fmt: skip


def _turn(sample: Sample, start: int, end: int) -> Turn:
    """The turn whose actions are the tokens from `start` to `end`."""
    generation = Generation(
        action_ids=sample.token_ids[start:end].tolist(),
        logprobs=sample.sampled_logprobs[start:end],
        finish=Finish.STOP,
    )
    return Turn(prompt_ids=sample.token_ids[:start].tolist(), generation=generation, text="x")


def make_score(reward: float | None) -> Score:
    """Success is a reward of 1; None rejects."""
    return Score(total=reward, success=float(reward == 1.0), parts={"tests": reward or 0.0})


def make_task(name: str) -> Task:
    """A task of that id."""
    return Task(id=name, messages=({"role": "user", "content": name},), answer="x")


def make_group(name: str, rewards: Sequence[float | None], seed: int = 0) -> Group:
    """One trajectory and one sample per reward; None is a rejected trajectory without sample."""
    rng = np.random.default_rng([seed, len(name)])
    task = make_task(name)
    trajectories, samples = [], []
    for sibling, reward in enumerate(rewards):
        sample = make_sample(rng, sibling, prompt=3, actions=int(rng.integers(3, 9)))
        trajectories.append(make_trajectory(task, [sample]))
        if reward is not None:
            samples.append(sample)
    return Group(
        task=task,
        trajectories=tuple(trajectories),
        scores=tuple(map(make_score, rewards)),
        samples=tuple(samples),
    )


def make_cut_group(name: str, rewards: Sequence[float], seed: int = 0) -> Group:
    """Trajectories of two turns whose second prompt does not extend the first: two samples each."""
    rng = np.random.default_rng([seed, len(name), 1])
    task = make_task(name)
    rows = [
        [make_sample(rng, sibling, prompt=2 + turn, actions=3 + turn) for turn in (0, 1)]
        for sibling in range(len(rewards))
    ]
    rows = [
        [replace(s, turn_index=np.where(s.action_mask, turn, -1)) for turn, s in enumerate(row)]
        for row in rows
    ]
    return Group(
        task=task,
        trajectories=tuple(make_trajectory(task, row) for row in rows),
        scores=tuple(map(make_score, rewards)),
        samples=tuple(sample for row in rows for sample in row),
    )


def make_long_group(name: str, rewards: Sequence[float], seed: int = 0) -> Group:
    """Trajectories of two turns in one sample with an observation between; the first is cut."""
    group = make_group(name, rewards, seed)
    trajectories, samples = [], []
    for trajectory, sample in zip(group.trajectories, group.samples, strict=True):
        first = sample.num_prompt_tokens
        mask = sample.action_mask.copy()
        mask[first + 1] = False
        turn_index = np.where(mask, 1, -1)
        turn_index[first] = 0
        cut = sample.sibling == 0
        sample = replace(_masked(sample, mask), turn_index=turn_index, truncated=cut)
        turns = (_turn(sample, first, first + 1), _turn(sample, first + 2, len(mask)))
        stop = Stop.MAX_TURNS if cut else Stop.DONE
        trajectories.append(replace(trajectory, turns=turns, stop=stop))
        samples.append(sample)
    return replace(group, trajectories=tuple(trajectories), samples=tuple(samples))


def make_demonstrations(count: int, seed: int = 0) -> list[Group]:
    """Groups without trajectories: a reference answer that nobody sampled."""
    groups: list[Group] = []
    for i in range(count):
        rng = np.random.default_rng([seed, i, 2])
        sample = make_sample(rng, 0, prompt=4, actions=3 + i)
        nobody = np.zeros(len(sample.token_ids), dtype=np.float32)
        sample = replace(sample, sampled_logprobs=nobody, old_logprobs=nobody.copy())
        task = make_task(f"demonstration {i}")
        groups.append(Group(task=task, trajectories=(), scores=(), samples=(sample,)))
    return groups


def _masked(sample: Sample, mask: np.ndarray) -> Sample:
    """The sample with fewer active tokens, everything else 0."""
    assert sample.hidden is not None
    assert sample.values is not None
    logprobs = np.where(mask, sample.sampled_logprobs, 0.0).astype(np.float32)
    return replace(
        sample,
        action_mask=mask,
        sampled_logprobs=logprobs,
        old_logprobs=logprobs,
        hidden=sample.hidden * mask[:, None].astype(np.float32),
        values=np.where(mask, sample.values, 0.0).astype(np.float32),
    )


def step_groups(seed: int = 0) -> list[Group]:
    """What an ordinary step brings: two tasks, one with a rejected trajectory."""
    return [
        make_group("a", [1.0, 0.0, 0.5, 0.0], seed),
        make_group("bb", [0.0, None, 1.0, 1.0], seed),
    ]


def cases() -> dict[str, list[Group]]:
    """Groups of every kind, by what is special about them."""
    single = {
        "one sibling": [make_group("alone", [1.0])],
        "flat group": [make_group("flat", [0.5, 0.5, 0.5])],
        "solved flat group": [make_group("solved", [1.0, 1.0, 1.0])],
        "only rejected trajectories": [make_group("rejected", [None, None])],
        "group left out": [replace(make_group("left out", [0.0, 1.0]), samples=())],
        "trajectories cut into two samples": [make_cut_group("cut", [0.0, 1.0, 0.25])],
        "two turns in a sample": [make_long_group("two turns", [1.0, 0.0, 0.0])],
        "demonstrations": make_demonstrations(2),
    }
    together = [group for groups in single.values() for group in groups]
    return {
        "ordinary step": step_groups(),
        "no groups": [],
        **single,
        "everything together": [*step_groups(), *together],
    }


def judged(groups: Sequence[Group], needs: Any, views: Sequence[str], seed: int = 0) -> list[Group]:
    """The groups with what a part declared, and nothing else, as the judge phase fills it."""
    rng = np.random.default_rng([seed, 3])
    return [
        replace(group, samples=tuple(_judged(s, needs, views, rng) for s in group.samples))
        for group in groups
    ]


def _judged(sample: Sample, needs: Any, views: Sequence[str], rng: np.random.Generator) -> Sample:
    mask = sample.action_mask
    scores: dict[str, ViewScores] = {}
    for name in views:
        assert sample.old_logprobs is not None
        gap = random_row(rng, mask)
        divergences = {
            need: np.abs(random_row(rng, mask))
            for need in needs
            if isinstance(need, DivergenceNeed) and need.view == name
        }
        scores[name] = ViewScores(
            logprobs=np.minimum(sample.old_logprobs + gap, 0.0).astype(np.float32),
            divergences=divergences,
            informed=bool(rng.random() < 0.7),
        )
    return replace(
        sample,
        hidden=sample.hidden if "hidden" in needs else None,
        values=sample.values if "values" in needs else None,
        entropy=np.abs(random_row(rng, mask)) if "entropy" in needs else None,
        views=scores,
    )


def with_advantages(groups: Sequence[Group], seed: int = 0) -> list[Group]:
    """The groups with one random advantage per sample at its active tokens, some of them 0."""
    rng = np.random.default_rng([seed, 4])

    def filled(sample: Sample) -> Sample:
        value = float(rng.choice([-1.5, -0.5, 0.0, 0.75, 1.25]))
        return replace(sample, advantages=np.where(sample.action_mask, value, 0).astype(np.float32))

    return [replace(g, samples=tuple(map(filled, g.samples))) for g in groups]


def random_row(rng: np.random.Generator, mask: np.ndarray) -> FloatArray:
    """Normal numbers where the mask is true, 0 elsewhere [T]."""
    return np.where(mask, rng.normal(size=len(mask)), 0.0).astype(np.float32)


def declared(part: Any, needs: str = "needs") -> tuple[Any, tuple[str, ...]]:
    """What a part asks for: its needs and the names of its views."""
    return getattr(part, needs, frozenset()), tuple(getattr(part, "views", ()))
