"""The workshop: what a method may ask of a run. Plays, demonstrates and scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from selfdistill_cli.batching.samples import samples_of
from selfdistill_cli.core.hints import Hint, HintKind, with_hints
from selfdistill_cli.core.protocols import Chat, Env, RolloutEngine
from selfdistill_cli.core.seeds import seed_for
from selfdistill_cli.core.types import Group, Message, Score, Task, Trajectory
from selfdistill_cli.rewards.guarded import GuardedReward
from selfdistill_cli.rollout.episodes import play
from selfdistill_cli.training.demonstrations import demonstrate
from selfdistill_cli.training.world import World

EVALUATION = "eval"
"""The purpose under which episodes are played that nothing is learned from."""


@dataclass(frozen=True, kw_only=True)
class HintedPrompt:
    """A prompt with privileged text."""

    ids: Sequence[int]
    """[P] token ids up to the assistant boundary."""
    hints: tuple[Hint, ...]
    """The hints that the environment could give."""

    @property
    def privileged(self) -> str:
        """What the student did not see, for people to read."""
        return "\n".join(f"[{hint.kind}] {hint.text}" for hint in self.hints)


@dataclass(kw_only=True)
class TrainingWorkshop:
    """Joins environment, rollout engine, chat template and reward."""

    seed: int
    """The run's seed."""
    group_size: int
    """Episodes per task."""
    tasks_per_step: int
    """Tasks in one step."""
    env: Env
    """Tasks, episodes, hints."""
    reward: GuardedReward
    """Scores finished episodes."""
    chat: Chat
    """Messages to tokens."""
    rollout: RolloutEngine
    """Samples tokens."""
    rollout_settings: Any
    """Limits and the sampling temperature."""
    with_hidden: bool
    """Ask the rollout for the last hidden states."""
    world: World
    """Deals the tasks out; rank 0 scores."""
    version: int = 0
    """Step of the weights in the rollout engine."""

    def rest(self) -> None:
        """Nothing is sampled for a while: an engine that can gives its memory back."""
        getattr(self.rollout, "rest", lambda: None)()

    def tasks(self, split: str) -> Sequence[Task]:
        """Tasks of a split of the environment."""
        return self.env.tasks(split)

    def play(self, tasks: Sequence[Task], step: int, purpose: str) -> list[Group]:
        """Play `group_size` episodes per task and score them."""
        return self.play_with(tasks, purpose=purpose, step=step)

    def play_with(
        self,
        tasks: Sequence[Task],
        *,
        purpose: str,
        step: int,
        group_size: int | None = None,
        temperature: float | None = None,
        hints: Sequence[HintKind] = (),
    ) -> list[Group]:
        """Play, with another group size, temperature or hinted prompts if asked."""

        def play_own(tasks: list[Task]) -> list[list[Trajectory]]:
            self.world.note(purpose, _named(tasks))
            return play(
                self.rollout,
                self.env,
                self.chat,
                tasks,
                group_size or self.group_size,
                settings=self.rollout_settings,
                temperature=temperature,
                seed_key=(self.seed, purpose, step),
                policy_version=self.version,
                messages_for=lambda task: self.hinted_messages(task, hints, (), (), None),
                with_hidden=self.with_hidden,
            )

        # A task that comes twice stays on one rank: its random streams are counted there.
        played = self.world.shared(tasks, play_own, units=[task.id for task in tasks])
        finished = [trajectory for trajectories in played for trajectory in trajectories]
        scores = iter(self._scores(finished, step, purpose))
        return [
            self._group(task, trajectories, tuple(islice(scores, len(trajectories))))
            for task, trajectories in zip(tasks, played, strict=True)
        ]

    def _scores(self, finished: Sequence[Trajectory], step: int, purpose: str) -> list[Score]:
        """All at once, in this order and in one place: judges work in batches, and remember."""
        self.world.note("scoring", _named([t.task for t in finished]))
        learning = purpose != EVALUATION
        return self.world.from_first(
            lambda: self.reward.score_many(finished, step=step, learning=learning)
        )

    def _group(
        self, task: Task, trajectories: Sequence[Trajectory], scores: tuple[Score, ...]
    ) -> Group:
        samples = [
            sample
            for trajectory, score in zip(trajectories, scores, strict=True)
            if score.total is not None
            for sample in samples_of(trajectory)
        ]
        return Group(
            task=task, trajectories=tuple(trajectories), scores=scores, samples=tuple(samples)
        )

    def demonstrations(
        self, tasks: Sequence[Task], step: int, hint: HintKind | None
    ) -> list[Group]:
        """Expert episodes or reference answers; each prompt carries the hint, if one is named."""
        kinds = () if hint is None else (hint,)
        groups: list[Group] = []
        for task in tasks:
            messages = self.hinted_messages(task, kinds, (), (), None, salt=step)
            samples = demonstrate(self.env, self.chat, task, self.chat.prompt_ids(messages), step)
            groups.append(Group(task=task, trajectories=(), scores=(), samples=samples))
        return groups

    def hinted_messages(
        self,
        task: Task,
        kinds: Sequence[HintKind],
        siblings: Sequence[Trajectory],
        scores: Sequence[Score],
        index: int | None,
        salt: int = 0,
    ) -> tuple[Message, ...]:
        """The task's prompt with those of the hints that the environment can give here."""
        return with_hints(
            task.messages, self._hints(task, kinds, siblings, scores, index, salt)
        )

    def hinted_prompt(
        self,
        task: Task,
        kinds: Sequence[HintKind],
        siblings: Sequence[Trajectory],
        scores: Sequence[Score],
        index: int | None,
        salt: int = 0,
    ) -> HintedPrompt:
        """The same as token ids, with the hints that it carries."""
        hints = self._hints(task, kinds, siblings, scores, index, salt)
        ids = self.chat.prompt_ids(with_hints(task.messages, hints))
        return HintedPrompt(ids=ids, hints=tuple(hints))

    def _hints(
        self,
        task: Task,
        kinds: Sequence[HintKind],
        siblings: Sequence[Trajectory],
        scores: Sequence[Score],
        index: int | None,
        salt: int,
    ) -> list[Hint]:
        found: list[Hint] = []
        for kind in kinds:
            seed = seed_for(self.seed, "hint", salt, task.id, kind)
            hint = self.env.hint(kind, task, siblings, scores, index, seed)
            if hint is not None:
                found.append(hint)
        return found


def _named(tasks: Sequence[Task]) -> str:
    """The first tasks and how many more there are."""
    ids = list(dict.fromkeys(task.id for task in tasks))
    more = f" and {len(ids) - 3} more" if len(ids) > 3 else ""
    return f"task {', '.join(ids[:3])}{more}" if ids else ""


def rejected(group: Group) -> int:
    """Trajectories of a group that were left out: environment error or no total score."""
    return sum(score.total is None for score in group.scores)
