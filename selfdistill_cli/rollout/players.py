"""One episode being played: what it saw and made so far, and why it ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.core.protocols import Chat, Episode, GenerationRequest
from selfdistill_cli.core.seeds import Key, seed_for
from selfdistill_cli.core.types import Message, Stop, Task, Trajectory, Turn


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
    @property
    def max_live_tokens(self) -> int: ...
    @property
    def overflow(self) -> str: ...
    @property
    def env_wall_s(self) -> float: ...
    @property
    def env_cpu_s(self) -> float: ...


@dataclass(kw_only=True)
class Player:
    """One episode, waiting or being played."""

    task: Task
    """Its task."""
    sibling: int
    """Index within its group."""
    key: Sequence[Key]
    """Of its random streams."""
    messages: list[Message]
    """The conversation as texts; what was sampled stands in `turns` as tokens."""
    num_task_messages: int
    """Messages at its start that were there before the first turn."""
    prompt_ids: Sequence[int]
    """[P] what the next turn is sampled from."""
    episode: Episode | None = None
    """None until it is admitted."""
    turns: list[Turn] = field(default_factory=list)
    """Turns so far."""
    stop: Stop | None = None
    """Why it ended, None while it is played."""
    outcome: Mapping[str, Any] = field(default_factory=dict)
    """What the environment told last."""
    cpu_s: float = 0.0
    """CPU seconds that its environment used."""

    def request(self) -> GenerationRequest:
        """Return what to sample next; the stream is keyed by the turn."""
        return GenerationRequest(
            prompt_ids=self.prompt_ids, seed=seed_for(*self.key, len(self.turns))
        )

    def fail(self, error: Exception) -> None:
        """End it by a fault of its environment."""
        self.stop = Stop.ENV_ERROR
        self.outcome = {"error": f"{type(error).__name__}: {error}"}

    def trajectory(self, policy_version: int) -> Trajectory:
        """Return what was played."""
        return Trajectory(
            task=self.task,
            sibling=self.sibling,
            turns=tuple(self.turns),
            stop=self.stop or Stop.MAX_TURNS,
            outcome=self.outcome,
            policy_version=policy_version,
        )


def players_of(
    chat: Chat,
    tasks: Sequence[Task],
    group_size: int,
    settings: PlayLimits,
    seed_key: Sequence[Key],
    messages_for: Callable[[Task], Sequence[Message]] | None,
) -> list[Player]:
    """Return `group_size` waiting episodes of every task; raises ConfigError for a long prompt."""
    players: list[Player] = []
    seen: Counter[str] = Counter()
    for task in tasks:
        messages = list(task.messages if messages_for is None else messages_for(task))
        prompt_ids = chat.prompt_ids(messages)
        _check_room(task, len(prompt_ids), settings)
        first = seen[task.id] * group_size  # a task that comes twice gets new random streams
        seen[task.id] += 1
        players += [
            Player(
                task=task,
                sibling=sibling,
                key=(*seed_key, task.id, first + sibling),
                messages=list(messages),
                num_task_messages=len(messages),
                prompt_ids=prompt_ids,
            )
            for sibling in range(group_size)
        ]
    return players


def _check_room(task: Task, length: int, settings: PlayLimits) -> None:
    if length > settings.max_context_tokens - settings.max_new_tokens:
        raise ConfigError(
            f"rollout.max_context_tokens={settings.max_context_tokens}: the prompt of task "
            f"{task.id} has {length} tokens, which leaves no room for "
            f"rollout.max_new_tokens={settings.max_new_tokens}; raise the former or lower the "
            "latter"
        )
