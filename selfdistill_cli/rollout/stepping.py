"""Stepping environments: whatever one of them does, it costs its own episode and no other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from selfdistill_cli.core.errors import SandboxError
from selfdistill_cli.core.protocols import Env, StepResult
from selfdistill_cli.core.seeds import seed_for
from selfdistill_cli.rollout.players import Player, PlayLimits
from selfdistill_cli.rollout.runner import Job, run_jobs

log = logging.getLogger(__name__)


def open_episodes(env: Env, players: Sequence[Player], settings: PlayLimits) -> None:
    """Give every player its episode; one whose environment fails has ended."""

    def opening(player: Player) -> Callable[[], Any]:
        return lambda: env.episode(player.task, seed_for(*player.key, "episode"))

    for player, made in zip(players, _limited(players, opening, settings), strict=True):
        if isinstance(made, Exception):
            log.warning("environment error in task %s: %r", player.task.id, made, exc_info=made)
            player.fail(made)
        else:
            player.episode = made


def step_all(
    env: Env, players: Sequence[Player], actions: Sequence[str], settings: PlayLimits
) -> list[StepResult | Exception]:
    """Step every episode with its action; an environment's exception stands for its result.

    An environment may have `step_many(episodes, actions)`, which returns one result (or exception)
    per episode, may work on them side by side, and bounds its own time. If it raises, the episodes
    are stepped one by one, so that an answer that it cannot cope with costs its own trajectory.
    A SandboxError goes through.
    """
    found = _step_many(env, players, actions)
    if found is None:
        texts = {id(player): action for player, action in zip(players, actions, strict=True)}

        def stepping(player: Player) -> Callable[[], Any]:
            episode: Any = player.episode
            return lambda: episode.step(texts[id(player)])

        found = _limited(players, stepping, settings)
    return [_checked(result) for result in found]


def _step_many(env: Env, players: Sequence[Player], actions: Sequence[str]) -> list[Any] | None:
    many = getattr(env, "step_many", None)
    if many is None:
        return None
    try:
        found = list(many([player.episode for player in players], actions))
    except SandboxError:
        raise
    except Exception as error:
        log.warning("stepping one by one after %r", error)
        return None
    if len(found) != len(players):
        log.warning("step_many gave %d results for %d episodes", len(found), len(players))
        return None
    return found


def _limited(
    players: Sequence[Player], call_of: Callable[[Player], Callable[[], Any]], settings: PlayLimits
) -> list[Any]:
    """Call once per player within the limits; return results or exceptions."""
    jobs = [
        Job(call=call_of(player), cpu_left_s=settings.env_cpu_s - player.cpu_s)
        for player in players
    ]
    run_jobs(jobs, settings.env_wall_s)
    for player, job in zip(players, jobs, strict=True):
        player.cpu_s += job.cpu_s
        if isinstance(job.result, SandboxError):
            raise job.result
    return [job.result for job in jobs]


def _checked(result: Any) -> StepResult | Exception:
    """Return the result, or what is wrong with it: an environment may return anything."""
    if isinstance(result, SandboxError):
        raise result
    if isinstance(result, Exception):
        return result
    if not isinstance(result, StepResult):
        return TypeError(f"step returned {type(result).__name__}, expected StepResult")
    outcome: Any = result.outcome
    if outcome is not None and not isinstance(outcome, Mapping):
        return TypeError(f"outcome is {type(outcome).__name__}, expected a mapping")
    try:
        for message in result.observation:
            message["role"].encode()
            message["content"].encode()  # half a character is in no tokenizer's vocabulary
    except (TypeError, KeyError, AttributeError, UnicodeEncodeError) as error:
        return TypeError(f"an observation is no message: {error!r:.200}")
    if not result.done and not result.observation:
        return TypeError("the episode is not over and there is no observation")
    return result
