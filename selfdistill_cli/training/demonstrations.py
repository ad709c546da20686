"""Demonstrations: a reference answer, or an expert's episode with the environment's replies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from selfdistill_cli.batching.samples import demonstration_sample, samples_of
from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.core.protocols import Chat, Env, StepResult
from selfdistill_cli.core.types import Finish, Generation, Sample, Stop, Task, Trajectory, Turn


def demonstrate(
    env: Env, chat: Chat, task: Task, prompt_ids: Sequence[int], seed: int
) -> tuple[Sample, ...]:
    """Return a task's demonstration as samples whose ids count as actions, sampled by nobody.

    An environment of several turns has `expert(task, seed)`: the texts of the turns that solve the
    task. They are played, so that the replies are the real ones. Others have `Task.answer`.
    Raises ConfigError where there is neither.
    """
    expert: Any = getattr(env, "expert", None)
    texts: list[str] | None = None if expert is None else expert(task, seed)
    if texts:
        return _played(env, chat, task, prompt_ids, texts, seed)
    if task.answer is None or expert is not None:
        raise ConfigError(
            f"env: task {task.id} has no reference answer and no expert to demonstrate; "
            "expected one for every task of the split that method.source names"
        )
    return (demonstration_sample(prompt_ids, chat.answer_ids(task.answer)),)


def replies(
    env: Env, task: Task, texts: Sequence[str], seed: int
) -> Iterator[tuple[str, StepResult]]:
    """Yield each text of an episode with the environment's reply, to the end of the episode."""
    episode = env.episode(task, seed)
    for text in texts:
        result = episode.step(text)
        yield text, result
        if result.done:
            break


def _played(
    env: Env, chat: Chat, task: Task, prompt_ids: Sequence[int], texts: Sequence[str], seed: int
) -> tuple[Sample, ...]:
    turns: list[Turn] = []
    ids = list(prompt_ids)
    for text, result in replies(env, task, texts, seed):
        action = chat.answer_ids(text)
        made = Generation(
            action_ids=action, logprobs=np.zeros(len(action), np.float32), finish=Finish.STOP
        )
        turns.append(
            Turn(prompt_ids=ids, generation=made, text=text, observation=result.observation)
        )
        if not result.done:
            ids = [*ids, *action, *chat.observation_ids(result.observation, True)]
    played = Trajectory(
        task=task, sibling=0, turns=tuple(turns), stop=Stop.DONE, outcome={}, policy_version=0
    )
    return samples_of(played)
