"""Small real objects for tests: groups of one-turn trajectories with random hidden states."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from selfdistill_cli.core.types import (
    Finish,
    Generation,
    Group,
    Sample,
    Score,
    Stop,
    Task,
    Trajectory,
    Turn,
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


def make_group(name: str, rewards: Sequence[float | None], seed: int = 0) -> Group:
    """One trajectory and one sample per reward; None is a rejected trajectory without sample."""
    rng = np.random.default_rng([seed, len(name)])
    task = Task(id=name, messages=({"role": "user", "content": name},), answer="x")
    trajectories, scores, samples = [], [], []
    for sibling, reward in enumerate(rewards):
        sample = make_sample(rng, sibling, prompt=3, actions=int(rng.integers(3, 9)))
        ids = sample.token_ids[3:].tolist()
        generation = Generation(
            action_ids=ids, logprobs=sample.sampled_logprobs[3:], finish=Finish.STOP
        )
        turn = Turn(prompt_ids=sample.token_ids[:3].tolist(), generation=generation, text="x")
        trajectories.append(
            Trajectory(
                task=task, sibling=sibling, turns=(turn,), stop=Stop.DONE, outcome={},
                policy_version=0,
            )
        )  # fmt: skip
        success = float(reward == 1.0)
        scores.append(Score(total=reward, success=success, parts={"tests": reward or 0.0}))
        if reward is not None:
            samples.append(sample)
    return Group(
        task=task, trajectories=tuple(trajectories), scores=tuple(scores), samples=tuple(samples)
    )
