"""Playing episodes: many at once, each at its own turn, so that generation is batched."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence

from selfdistill_cli.core.protocols import Chat, Env, RolloutEngine, StepResult
from selfdistill_cli.core.seeds import Key
from selfdistill_cli.core.types import Generation, Message, Stop, Task, Trajectory, Turn
from selfdistill_cli.rollout.context import prepare_next_turn
from selfdistill_cli.rollout.players import Player, PlayLimits, players_of
from selfdistill_cli.rollout.stepping import open_episodes, step_all

log = logging.getLogger(__name__)


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
    players = players_of(chat, tasks, group_size, settings, seed_key, messages_for)
    waiting, active = deque(players), list[Player]()
    while waiting or active:
        active += _admitted(env, waiting, active, settings)
        if active:
            generations = engine.generate(
                [player.request() for player in active],
                max_new_tokens=settings.max_new_tokens,
                temperature=settings.temperature if temperature is None else temperature,
                with_hidden=with_hidden,
            )
            _act(env, chat, active, generations, settings)
            active = [player for player in active if player.stop is None]
    trajectories = [player.trajectory(policy_version) for player in players]
    return [trajectories[i : i + group_size] for i in range(0, len(trajectories), group_size)]


def _admitted(
    env: Env, waiting: deque[Player], active: Sequence[Player], settings: PlayLimits
) -> list[Player]:
    """Take episodes from the queue, in order, while their tokens fit; at least one in all.

    What is admitted depends on token counts alone, never on the clock.
    """
    room = settings.max_live_tokens - sum(len(p.prompt_ids) for p in active)
    room -= len(active) * settings.max_new_tokens
    chosen: list[Player] = []
    while waiting:
        room -= len(waiting[0].prompt_ids) + settings.max_new_tokens
        if room < 0 and (active or chosen):
            break
        chosen.append(waiting.popleft())
    open_episodes(env, chosen, settings)
    return [player for player in chosen if player.stop is None]


def _act(
    env: Env,
    chat: Chat,
    active: Sequence[Player],
    generations: Sequence[Generation],
    settings: PlayLimits,
) -> None:
    """Show the environments what was sampled, and prepare the next turns."""
    texts = [chat.decode(generation.action_ids) for generation in generations]
    results = step_all(env, active, texts, settings)
    for player, generation, text, result in zip(active, generations, texts, results, strict=True):
        _record(player, generation, text, result)
        if player.stop is None:
            prepare_next_turn(player, chat, settings)
        if player.stop is None and len(player.turns) >= settings.max_turns:
            player.stop = Stop.MAX_TURNS


def _record(
    player: Player, generation: Generation, text: str, result: StepResult | Exception
) -> None:
    """Record the turn and what the environment said to it."""
    observation: tuple[Message, ...] = ()
    if isinstance(result, Exception):
        log.warning("environment error in task %s: %r", player.task.id, result, exc_info=result)
        player.fail(result)
    else:
        observation = tuple(result.observation)
        if result.outcome is not None:
            player.outcome = result.outcome
        if result.done:
            player.stop = Stop.DONE
    turn = Turn(
        prompt_ids=player.prompt_ids, generation=generation, text=text, observation=observation
    )
    player.turns.append(turn)
