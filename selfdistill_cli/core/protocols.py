"""The seams of the house: what one room expects of another. No base classes, only shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from selfdistill_cli.core.hints import Hint, HintKind
from selfdistill_cli.core.needs import Needs
from selfdistill_cli.core.types import (
    Batch,
    FloatArray,
    Generation,
    Group,
    Message,
    PolicyOutput,
    Score,
    Task,
    Trajectory,
)

if TYPE_CHECKING:
    import torch

Metrics = Mapping[str, float]
Sums = Mapping[str, tuple[float, float]]
"""Diagnostics as (sum, count), so that micro-batches and ranks are added, never averaged."""


class Stateful(Protocol):
    """A part whose memory belongs in the checkpoint. Stateless parts return an empty dict."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What the environment says to one action."""

    observation: tuple[Message, ...] = ()
    """Shown to the agent before its next turn; empty when done."""
    done: bool = True
    """The episode is over."""
    outcome: Mapping[str, Any] | None = None
    """Set when done. If set before, it holds if a limit cuts the episode after this turn."""


class Episode(Protocol):
    """One single-use episode of an environment."""

    def step(self, action: str) -> StepResult: ...


class Env(Protocol):
    """An environment: tasks by split, episodes, and the privileged hints that it can give.

    It may have `key_spans(task, text)`: the spans [start, end) of a turn's text, in characters,
    that matter most, for parts that need `key_tokens`.
    """

    name: str
    hints: frozenset[HintKind]

    def tasks(self, split: str) -> Sequence[Task]: ...
    def episode(self, task: Task, seed: int) -> Episode: ...
    def hint(
        self,
        kind: HintKind,
        task: Task,
        siblings: Sequence[Trajectory],
        scores: Sequence[Score],
        index: int | None,
        seed: int,
    ) -> Hint | None:
        """Return a hint for sibling `index` of a group (None: before any attempt), or None."""
        ...

    def close(self) -> None: ...


class Reward(Protocol):
    """Scores a finished trajectory from its outcome.

    A reward may have more. `score_many(trajectories)` returns one score per trajectory, in order,
    and is then called instead. `state_dict` and `load_state_dict` make it Stateful: its memory is
    in the checkpoint. `learning` is set to False while an evaluation is scored: read the memory
    and add nothing to it.
    """

    def score(self, trajectory: Trajectory) -> Score: ...


class RewardComponent(Protocol):
    """One named component of a composite reward. Without memory."""

    def values(self, trajectories: Sequence[Trajectory]) -> Sequence[Any]:
        """One finite number per trajectory, or `rewards.outcomes.MASKED` for no value."""
        ...


class Chat(Protocol):
    """Text to tokens and back, by the model's own template."""

    stop_ids: frozenset[int]
    pad_id: int

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Ids up to and including the assistant boundary."""
        ...

    def observation_ids(self, messages: Sequence[Message], finished: bool) -> list[int]:
        """Ids between the agent's last token and its next turn (`finished`: it emitted a stop)."""
        ...

    def answer_ids(self, text: str) -> list[int]:
        """Ids of a demonstrated answer, with the end-of-turn id."""
        ...

    def decode(self, ids: Sequence[int]) -> str: ...


@dataclass(frozen=True, kw_only=True)
class GenerationRequest:
    """One prompt to sample from, with the key of its random stream."""

    prompt_ids: Sequence[int]
    """[P] ids; equal prompts are prefilled once."""
    seed: int
    """Keyed by (run seed, purpose, step, task id, sibling, turn)."""


class RolloutEngine(Protocol):
    """Samples tokens. The text of a generation is never encoded again."""

    def generate(
        self,
        requests: Sequence[GenerationRequest],
        *,
        max_new_tokens: int,
        temperature: float,
        with_hidden: bool = False,
    ) -> list[Generation]: ...
    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None: ...


class Engine(Protocol):
    """Owns the student, its optimizer and its gradients."""

    def forward(self, batch: Batch, needs: Needs) -> PolicyOutput: ...
    def backward(self, loss: torch.Tensor, last: bool) -> None: ...
    def step(self) -> float: ...
    def stream_weights(self) -> Iterable[tuple[str, torch.Tensor]]: ...


class Workshop(Protocol):
    """What a method may ask of a run: play, demonstrate, know the step."""

    seed: int
    group_size: int
    tasks_per_step: int

    def play(self, tasks: Sequence[Task], step: int, purpose: str) -> list[Group]: ...
    def demonstrations(
        self, tasks: Sequence[Task], step: int, hint: HintKind | None
    ) -> list[Group]:
        """Reference answers as samples; each prompt carries the hint, if one is named."""
        ...

    def tasks(self, split: str) -> Sequence[Task]: ...


@dataclass(frozen=True, kw_only=True)
class Readings:
    """What a step measured, for parts that follow it."""

    step: int
    """The step, counted from 1."""
    losses: Mapping[str, float]
    """Mean of every term before its coefficient, by term name."""
    reward: float | None
    """Mean total reward of the step's episodes, None without episodes."""
    teacher_kl: float | None
    """`teacher/kl` of the step, None without a teacher."""
    success: float | None
    """The student's success on the validation panel, None if the step did not evaluate."""


class SlowCopy(Protocol):
    """A second set of weights that follows the student."""

    def follow(self, decay: float) -> None:
        """slow = decay * slow + (1 - decay) * student, by name; integers are copied."""
        ...

    def copy_student(self) -> None: ...
    def distance(self) -> float:
        """Euclidean distance to the student's weights."""
        ...

    def keep_good(self) -> None:
        """Remember the weights as they are now."""
        ...

    def restore_good(self) -> bool:
        """Go back to the remembered weights; False if there are none."""
        ...


class Source(Stateful, Protocol):
    """Where samples come from."""

    def groups(self, workshop: Workshop, step: int) -> list[Group]: ...


class Advantage(Stateful, Protocol):
    """How good was this trajectory? Fills `Sample.advantages` (and rewards, returns)."""

    needs: Needs

    def assign(self, groups: Sequence[Group]) -> list[Group]: ...
    def after_credit(self, groups: Sequence[Group]) -> list[Group]:
        """Compare once more, after the credit was spread; most advantages change nothing."""
        ...


class Credit(Stateful, Protocol):
    """How is that spread over the tokens? Changes `Sample.advantages` or `Sample.weights`."""

    needs: Needs

    def reweight(self, groups: Sequence[Group], step: int) -> tuple[list[Group], Metrics]: ...
    def after_step(self, groups: Sequence[Group], step: int) -> Metrics: ...


class Coefficient(Stateful, Protocol):
    """A number, a schedule or a controller."""

    def __call__(self, step: int) -> float: ...
    def observe(self, measured: float | None, readings: Readings, synced: bool) -> None:
        """Move, given the mean of the own term and whether the slow copy was fully copied."""
        ...


class Term(Protocol):
    """One named part of the loss: a sum over a micro-batch and the count that divides it."""

    needs: Needs
    coefficient: Coefficient

    def weights(self, groups: Sequence[Group]) -> list[FloatArray] | None:
        """[T] weight of the term for every sample, fixed when judging; None means 1."""
        ...

    def count(self, batch: Batch) -> float:
        """This micro-batch's share of the global denominator."""
        ...

    def total(self, output: PolicyOutput, batch: Batch) -> tuple[torch.Tensor, Sums]:
        """Return the sum (connected to the graph, zero if empty) and diagnostics."""
        ...


class Sync(Stateful, Protocol):
    """How the slow copy follows the student."""

    synced: bool
    """Whether this step copied the student fully; the method clears it after each step."""

    def start(self, success: float | None) -> None:
        """Success of the copy before the first step, None if nothing was evaluated."""
        ...

    def after_update(self, copy: SlowCopy) -> None: ...
    def after_step(self, copy: SlowCopy | None, readings: Readings) -> Metrics: ...


class Sink(Protocol):
    """A copy of metrics.jsonl somewhere else. May neither stall nor kill the run."""

    def log(self, step: int, metrics: Mapping[str, Any]) -> None: ...
    def finish(self, status: str) -> None: ...
