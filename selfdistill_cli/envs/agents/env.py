"""The episode round a world: parse, check, act, observe, count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.core.hints import Hint, HintKind, text_hint
from selfdistill_cli.core.protocols import StepResult
from selfdistill_cli.core.seeds import seed_for
from selfdistill_cli.core.texts import readable
from selfdistill_cli.core.types import Message, Score, Task, Trajectory
from selfdistill_cli.envs.agents.actions import Action, Malformed, check, in_words
from selfdistill_cli.envs.agents.formats import FORMATS, ActionFormat
from selfdistill_cli.envs.agents.settings import AgentSettings
from selfdistill_cli.envs.agents.world import Domain, Reply, World
from selfdistill_cli.envs.attempts import Attempts


def shortened(text: str, limit: int) -> str:
    """Return the text, cut in its middle if it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    half = max(1, (limit - 5) // 2)
    return f"{text[:half]} ... {text[-half:]}"


class AgentEpisode:
    """One attempt: at most `max_steps` actions in one world."""

    def __init__(self, world: World, settings: AgentSettings) -> None:
        """Bind a new world."""
        self._world, self._settings = world, settings
        self._format: ActionFormat = FORMATS[settings.format]
        self._steps, self._invalid = 0, 0
        self._actions: list[str] = []

    def step(self, action: str) -> StepResult:
        """Do what the text says; a text that is no action gets an observation that says why."""
        self._steps += 1
        try:
            found = self._format.parse(action, self._world.tools(), self._world.choices())
            check(found, self._world.tools())
            reply = self._world.act(found)
            self._actions.append(self._short(found))
        except Malformed as error:
            self._invalid += 1
            self._actions.append(f"(invalid) {shortened(readable(action), 60)}")
            reply = Reply(text=f"Invalid action: {error}")
        done = reply.done or self._steps >= self._settings.max_steps
        observation = () if done else (Message(role="user", content=self._seen(reply.text)),)
        return StepResult(observation=observation, done=done, outcome=self._outcome())

    def _short(self, action: Action) -> str:
        """Return what is remembered of an action; one that was chosen by number is never read."""
        chosen = self._settings.picks
        return action.short() if chosen else in_words(action, self._world.tools())

    def _seen(self, text: str) -> str:
        text = shortened(readable(text), self._settings.max_observation)
        return below(text, self._world, self._settings)

    def _outcome(self) -> dict[str, Any]:
        """Return what rewards and hints read; JSON."""
        return {
            **self._world.facts(),
            "steps": self._steps,
            "invalid_actions": self._invalid,
            "format": 1.0 - self._invalid / self._steps,
            "actions": list(self._actions),
        }


def below(text: str, world: World, settings: AgentSettings) -> str:
    """Return the text with the admissible actions below it, where they are shown."""
    if not settings.show_choices:
        return text
    shown = FORMATS[settings.format].show(world.choices(), world.tools())
    return f"{text}\n{shown}".strip("\n") if shown else text


class AgentEnv:
    """Tasks of a domain, told in an action format. Subclasses say which domain."""

    name: ClassVar[str] = ""
    hints: frozenset[HintKind] = frozenset()

    def __init__(self, settings: AgentSettings, domain: Domain) -> None:
        """Keep the parts; reads no file."""
        self._settings, self._domain = settings, domain
        self._format: ActionFormat = FORMATS[settings.format]
        self._tasks: dict[str, tuple[Task, ...]] = {}

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the tasks of a split; raises ConfigError, DataError."""
        if split not in self._tasks:
            told = (self._told(task) for task in self._domain.tasks(split))
            self._tasks[split] = tuple(told)
        return self._tasks[split]

    def _told(self, task: Task) -> Task:
        """Return the task with its tools explained and its first observation."""
        world = self._domain.world(task, 0)
        if self._settings.picks and not world.choices():
            raise ConfigError(
                f"env.format: got '{self._settings.format}', but task {task.id} lists no actions "
                "to choose from; use env.format=tags, json or native"
            )
        messages = self._instructed(task.messages, world)
        last = messages[-1]
        content = below(f"{last['content']}\n{world.begin()}".rstrip("\n"), world, self._settings)
        return replace(task, messages=(*messages[:-1], Message(role=last["role"], content=content)))

    def _instructed(self, messages: Sequence[Message], world: World) -> tuple[Message, ...]:
        s = self._settings
        parts = [s.instructions or ""]
        parts += [self._format.instructions(world.tools())] if s.describe_tools else []
        text = "\n\n".join(part for part in parts if part)
        return (Message(role="system", content=text), *messages) if text else tuple(messages)

    def episode(self, task: Task, seed: int) -> AgentEpisode:
        """Return a new episode."""
        return AgentEpisode(self._domain.world(task, seed), self._settings)

    def expert(self, task: Task, seed: int) -> list[str] | None:
        """Return the texts of an expert's turns that solve the task, None if there is none."""
        world = self._domain.world(task, seed)
        texts: list[str] = []
        while len(texts) < self._settings.max_steps:
            action = world.expert()
            if action is None:
                return None
            texts.append(self._format.render(action, world.choices(), world.tools()))
            if world.act(action).done:
                return texts if world.facts()["success"] >= 1.0 else None
        return None

    def hint(
        self,
        kind: HintKind,
        task: Task,
        siblings: Sequence[Trajectory],
        scores: Sequence[Score],
        index: int | None,
        seed: int,
    ) -> Hint | None:
        """Return a hint, or None where there is none.

        sibling: what a solved attempt did. own_wrong_answer: what attempt `index` did, if it
        failed. feedback: the same with the environment's words about it. meta_skill: a solved and
        a failed attempt side by side. answer, evidence and skill are the domain's. pruned: the
        messages without the skills in them.
        """
        if kind == "pruned":
            messages = self._domain.without_skills(task)
            return None if messages is None else Hint(kind=kind, text="", messages=messages)
        key = seed_for(seed, kind, task.id)
        attempts = Attempts(siblings, scores, index, key, graded_by="actions")
        text = {
            "sibling": lambda: _told(attempts.solved()),
            "own_wrong_answer": lambda: _told(attempts.own_failed()),
            "feedback": lambda: self._feedback(task, attempts.own_failed()),
            "meta_skill": lambda: _contrast(attempts.pair()),
        }.get(kind, lambda: self._domain.hint(kind, task, seed))()
        return text_hint(kind, text)

    def _feedback(self, task: Task, own: Mapping[str, Any] | None) -> str | None:
        said = None if own is None else self._domain.feedback(task, own)
        return f"{_told(own)}\n{said}" if said else None

    def close(self) -> None:
        """Nothing to close."""


def _told(outcome: Mapping[str, Any] | None) -> str | None:
    return None if outcome is None else "; ".join(outcome["actions"])


def _contrast(pair: tuple[Mapping[str, Any], Mapping[str, Any]] | None) -> str | None:
    return None if pair is None else f"worked: {_told(pair[0])}\nfailed: {_told(pair[1])}"
