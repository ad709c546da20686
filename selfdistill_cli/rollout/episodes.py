"""Playing episodes: all of them turn by turn in lock-step, so that generation is batched."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from selfdistill_cli.core.errors import ConfigError, SandboxError
from selfdistill_cli.core.protocols import (
    Chat,
    Env,
    Episode,
    GenerationRequest,
    RolloutEngine,
    StepResult,
)
from selfdistill_cli.core.seeds import Key, seed_for
from selfdistill_cli.core.types import Finish, Generation, Message, Stop, Task, Trajectory, Turn

log = logging.getLogger(__name__)


class PlayLimits(Protocol):
    """The settings that playing reads."""

    @property
    def max_new_tokens(self) -> int: ...
    @property
    def temperature(self) -> float: ...
    @property
    def max_turns(self) -> int: ...
    @property
    def max_context_tokens(self) -> int: ...


@dataclass(kw_only=True)
class _Player:
    """One episode being played."""

    task: Task
    sibling: int
    key: Sequence[Key]
    episode: Episode
    prompt_ids: Sequence[int]
    turns: list[Turn] = field(default_factory=list)
    stop: Stop | None = None
    outcome: Mapping[str, Any] = field(default_factory=dict)


def play(
    engine: RolloutEngine,
    env: Env,
    chat: Chat,
    tasks: Sequence[Task],
    group_size: int,
    *,
    settings: PlayLimits,
    seed_key: Sequence[Key],
    policy_version: int,
    temperature: float | None = None,
    messages_for: Callable[[Task], Sequence[Message]] | None = None,
    with_hidden: bool = False,
) -> list[list[Trajectory]]:
    """Play `group_size` episodes of every task; one list of trajectories per task.

    `seed_key` is (run seed, purpose, step); the streams are keyed by it, the task's id, the
    sibling and the turn. `temperature` overrides the settings'. `messages_for` gives a task's
    first messages, by default its own. An exception of the environment ends that trajectory with
    `Stop.ENV_ERROR`; SandboxError goes through. An answer that was cut by max_new_tokens is
    shown to the environment like any other: if that ends the episode, it ended by `Stop.DONE`.
    A trajectory that was cut by a limit keeps the last outcome that the environment told before it
    was done, such as a graded attempt; without one its outcome is empty.
    """
    players = _start(env, chat, tasks, group_size, settings, seed_key, messages_for)
    for turn in range(settings.max_turns):
        active = [player for player in players if player.stop is None]
        if not active:
            break
        generations = engine.generate(
            [_request(player, turn) for player in active],
            max_new_tokens=settings.max_new_tokens,
            temperature=settings.temperature if temperature is None else temperature,
            with_hidden=with_hidden,
        )
        texts = [chat.decode(generation.action_ids) for generation in generations]
        results = step_all(env, [player.episode for player in active], texts)
        for player, generation, text, result in zip(
            active, generations, texts, results, strict=True
        ):
            _advance(player, generation, text, result)
            if player.stop is None:
                _next_prompt(player, chat, settings)
    trajectories = [_finished(player, policy_version) for player in players]
    return [trajectories[i : i + group_size] for i in range(0, len(trajectories), group_size)]


def step_all(
    env: Env, episodes: Sequence[Episode], actions: Sequence[str]
) -> list[StepResult | Exception]:
    """Step every episode with its action; an environment's exception stands for its result.

    An environment may have `step_many(episodes, actions)`, which returns one result (or exception)
    per episode and may work on them side by side. If it raises, the episodes are stepped one by
    one, so that an answer that it cannot cope with costs its own trajectory and no other.
    """
    many = getattr(env, "step_many", None)
    if many is not None:
        try:
            return list(many(episodes, actions))
        except SandboxError:
            raise
        except Exception as error:
            log.warning("stepping one by one after %r", error)
    return [_step(episode, action) for episode, action in zip(episodes, actions, strict=True)]


def _step(episode: Episode, action: str) -> StepResult | Exception:
    try:
        return episode.step(action)
    except SandboxError:
        raise
    except Exception as error:  # whatever a user's environment raises costs one trajectory
        return error


def _start(
    env: Env,
    chat: Chat,
    tasks: Sequence[Task],
    group_size: int,
    settings: PlayLimits,
    seed_key: Sequence[Key],
    messages_for: Callable[[Task], Sequence[Message]] | None,
) -> list[_Player]:
    room = settings.max_context_tokens - settings.max_new_tokens
    players: list[_Player] = []
    seen: Counter[str] = Counter()
    for task in tasks:
        messages = task.messages if messages_for is None else messages_for(task)
        prompt_ids = chat.prompt_ids(messages)
        if len(prompt_ids) > room:
            raise ConfigError(
                f"rollout.max_context_tokens={settings.max_context_tokens}: the prompt of task "
                f"{task.id} has {len(prompt_ids)} tokens, which leaves no room for "
                f"rollout.max_new_tokens={settings.max_new_tokens}; raise the former or lower the "
                "latter"
            )
        first = seen[task.id] * group_size  # a task that comes twice gets new random streams
        seen[task.id] += 1
        for sibling in range(group_size):
            key = (*seed_key, task.id, first + sibling)
            players.append(
                _Player(
                    task=task,
                    sibling=sibling,
                    key=key,
                    episode=env.episode(task, seed_for(*key, "episode")),
                    prompt_ids=prompt_ids,
                )
            )
    return players


def _request(player: _Player, turn: int) -> GenerationRequest:
    seed = seed_for(*player.key, turn)
    return GenerationRequest(prompt_ids=player.prompt_ids, seed=seed)


def _advance(
    player: _Player, generation: Generation, text: str, result: StepResult | Exception
) -> None:
    """Record the turn and what the environment said to it."""
    observation: tuple[Message, ...] = ()
    if isinstance(result, SandboxError):
        raise result
    if isinstance(result, Exception):
        player.stop = Stop.ENV_ERROR
        player.outcome = {"error": f"{type(result).__name__}: {result}"}
        log.warning("environment error in task %s: %r", player.task.id, result, exc_info=result)
    else:
        observation = tuple(result.observation)
        if result.outcome is not None:
            player.outcome = result.outcome
        if result.done:
            player.stop = Stop.DONE
    player.turns.append(
        Turn(
            prompt_ids=player.prompt_ids,
            generation=generation,
            text=text,
            observation=observation,
        )
    )


def _next_prompt(player: _Player, chat: Chat, settings: PlayLimits) -> None:
    """Append the sampled ids and the observation's ids; stop where there is no room for more."""
    turn = player.turns[-1]
    finished = turn.generation.finish is Finish.STOP
    added = chat.observation_ids(turn.observation, finished)
    prompt_ids = [*player.prompt_ids, *turn.generation.action_ids, *added]
    if len(prompt_ids) + settings.max_new_tokens > settings.max_context_tokens:
        player.stop = Stop.MAX_TOKENS
    player.prompt_ids = prompt_ids


def _finished(player: _Player, policy_version: int) -> Trajectory:
    return Trajectory(
        task=player.task,
        sibling=player.sibling,
        turns=tuple(player.turns),
        stop=player.stop or Stop.MAX_TURNS,
        outcome=player.outcome,
        policy_version=policy_version,
    )
