"""What travels through the house. Arrays are about tokens: position t is about token t.

Letters in shapes: B rows, T tokens, H hidden size, K top-k. `values[t]` and `hidden[t]` belong to
the state *in which token t was chosen* (the model's output at position t-1). One function,
`selfdistill_cli.losses.logprobs.align_to_tokens`, makes that shift.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import numpy.typing as npt

from selfdistill_cli.core.needs import DivergenceNeed, LayerNeed, TopNeed

if TYPE_CHECKING:
    import torch

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class Message(TypedDict):
    """One chat message."""

    role: str
    content: str


class Stop(StrEnum):
    """Why an episode ended."""

    DONE = "done"
    MAX_TURNS = "max_turns"
    MAX_TOKENS = "max_tokens"
    ENV_ERROR = "env_error"


class Finish(StrEnum):
    """Why one generation ended."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, kw_only=True)
class Task:
    """One problem of an environment. JSON-able; the id is stable and seeds are keyed by it."""

    id: str
    """Stable, unique within the environment."""
    messages: tuple[Message, ...]
    """What the agent is shown first."""
    answer: Any = None
    """Reference answer (for code: a program), or None."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else the environment needs, for example tests."""


@dataclass(frozen=True, kw_only=True)
class Generation:
    """What the rollout engine made for one prompt. A tokens were sampled."""

    action_ids: Sequence[int]
    """[A] sampled ids, with the end-of-turn id if the model emitted it."""
    logprobs: FloatArray
    """[A] log-probability of each sampled id at the sampling temperature."""
    finish: Finish
    """Whether the model stopped or ran out of tokens."""
    hidden: FloatArray | None = None
    """[A,H] last hidden state from which each id was sampled, where the engine can give it."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One assistant turn, exactly as the engine saw and made it."""

    prompt_ids: Sequence[int]
    """[P] everything before the sampled tokens."""
    generation: Generation
    """The sampled tokens."""
    text: str
    """The sampled tokens as text, for the environment and for people; never encoded again."""
    observation: tuple[Message, ...] = ()
    """What the environment answered."""


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """One episode."""

    task: Task
    """The problem."""
    sibling: int
    """Index within its group."""
    turns: tuple[Turn, ...]
    """At least one."""
    stop: Stop
    """Why it ended."""
    outcome: Mapping[str, Any]
    """What the environment knows: per-test results, evidence met."""
    policy_version: int
    """The step whose weights sampled it."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """How good a trajectory was. Never nan."""

    total: float | None
    """What training maximises; None rejects the trajectory."""
    success: float
    """Task success in [0, 1], never a composite."""
    parts: Mapping[str, float]
    """Named components, unweighted."""
    missing: tuple[str, ...] = ()
    """Components that could not be computed (they contribute 0 and are counted)."""


@dataclass(frozen=True, kw_only=True)
class TopScores:
    """A distribution over K tokens and one bucket for all others, per state."""

    ids: IntArray
    """[T,K] token ids in ascending order."""
    logprobs: FloatArray
    """[T,K] their log-probabilities."""
    tail: FloatArray
    """[T] log-mass of all other tokens, -inf if there is none."""


@dataclass(frozen=True, kw_only=True)
class ViewScores:
    """The sampled tokens scored under another view."""

    logprobs: FloatArray
    """[T] log-probability of each token under the view, 0 at inactive positions."""
    hidden: FloatArray | None = None
    """[T,H] hidden state in which the view's model chose, only when a part asks for it."""
    tops: Mapping[TopNeed, TopScores] = field(default_factory=dict)
    """Likeliest tokens, only when a part asks for them."""
    layers: Mapping[LayerNeed, FloatArray] = field(default_factory=dict)
    """[T,L,H] hidden states of chosen layers, only when a part asks for them."""
    divergences: Mapping[DivergenceNeed, FloatArray] = field(default_factory=dict)
    """[T] divergence from the student that sampled, only when a part asks for it."""
    informed: bool = True
    """Whether the prompt carried at least one of the hints that were asked for (true if none)."""
    privileged: str = ""
    """The text that the student did not see, for people to read."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One token sequence to learn from. Every array has length T."""

    token_ids: IntArray
    """[T] ids."""
    action_mask: BoolArray
    """[T] true where the agent sampled the token."""
    turn_index: IntArray
    """[T] assistant turn of the token, -1 elsewhere."""
    sampled_logprobs: FloatArray
    """[T] log-probabilities recorded at sampling, 0 at inactive positions."""
    sibling: int
    """Index of its trajectory within the group."""
    num_prompt_tokens: int
    """Tokens before the first assistant boundary: what a view may replace."""
    truncated: bool = False
    """The episode was cut by a limit, so its last value may be bootstrapped."""
    bootstrap_value: float = 0.0
    """Value of the state after the last token, used if truncated."""
    old_logprobs: FloatArray | None = None
    """[T] log-probabilities of the policy that the ratio is taken against."""
    current_logprobs: FloatArray | None = None
    """[T] log-probabilities of the student as it is now, where it is not the one that sampled."""
    hidden: FloatArray | None = None
    """[T,H] hidden state in which each token was chosen, 0 at inactive positions."""
    entropy: FloatArray | None = None
    """[T] entropy of the policy at each token, in nats."""
    values: FloatArray | None = None
    """[T] the critic's value of the state in which each token was chosen."""
    rewards: FloatArray | None = None
    """[T] reward given at each token."""
    returns: FloatArray | None = None
    """[T] regression target of the critic."""
    views: Mapping[str, ViewScores] = field(default_factory=dict)
    """Scores under other weights and contexts, by view name."""
    advantages: FloatArray | None = None
    """[T] advantage of each token, 0 at inactive positions."""
    weights: Mapping[str, FloatArray] = field(default_factory=dict)
    """[T] extra per-token weight by term name, absent means 1; `credit` is there to be read."""
    key_tokens: BoolArray | None = None
    """[T] true at sampled tokens that the environment names as key (`Env.key_spans`)."""
    line_starts: BoolArray | None = None
    """[T] true at the first sampled token of every line of a turn."""
    pair: int = -1
    """Number of the pair that a preference term compares, -1 for none."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Siblings of one task."""

    task: Task
    """The problem."""
    trajectories: tuple[Trajectory, ...]
    """Empty for demonstrations."""
    scores: tuple[Score, ...]
    """One per trajectory."""
    samples: tuple[Sample, ...]
    """One or more per trajectory; rejected trajectories have none."""


@dataclass(frozen=True, kw_only=True)
class ViewBatch:
    """A view's scores of one micro-batch, padded."""

    logprobs: torch.Tensor
    """[B,T] float32."""
    hidden: torch.Tensor | None = None
    """[B,T,H] float32."""
    unembedding: tuple[torch.Tensor, torch.Tensor | None] | None = None
    """Matrix [V,H] and bias [V] that belong to `hidden`."""
    tops: Mapping[TopNeed, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = field(
        default_factory=dict
    )
    """ids [B,T,K], log-probabilities [B,T,K], tail log-mass [B,T]."""
    layers: Mapping[LayerNeed, torch.Tensor] = field(default_factory=dict)
    """[B,T,L,H] float32."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One micro-batch: samples padded on the right, as tensors [B,T]."""

    token_ids: torch.Tensor
    """[B,T] int64."""
    attention_mask: torch.Tensor
    """[B,T] bool, false at padding."""
    action_mask: torch.Tensor
    """[B,T] bool, true at tokens that the agent sampled."""
    advantages: torch.Tensor
    """[B,T] float32."""
    old_logprobs: torch.Tensor
    """[B,T] float32."""
    old_values: torch.Tensor
    """[B,T] float32, zeros without a critic."""
    returns: torch.Tensor
    """[B,T] float32, zeros without a critic."""
    weights: Mapping[str, torch.Tensor]
    """[B,T] float32 by term name."""
    views: Mapping[str, ViewBatch]
    """By view name."""
    pairs: torch.Tensor
    """[B] int64 number of the pair, -1 for none."""

    @property
    def num_rows(self) -> int:
        """Number of rows B."""
        return int(self.token_ids.shape[0])


@dataclass(frozen=True, kw_only=True)
class PolicyOutput:
    """What the student says about a batch; aligned to tokens, 0 at inactive positions."""

    logprobs: torch.Tensor
    """[B,T] log-probability of each action token."""
    entropy: torch.Tensor | None = None
    """[B,T] entropy in nats."""
    values: torch.Tensor | None = None
    """[B,T] value of the state in which each token was chosen."""
    hidden: torch.Tensor | None = None
    """[B,T,H] hidden state in which each token was chosen, only when a part asks for it."""
    divergences: Mapping[DivergenceNeed, torch.Tensor] = field(default_factory=dict)
    """[B,T] divergence from a view in nats, only when a part asks for it."""
    layers: Mapping[LayerNeed, torch.Tensor] = field(default_factory=dict)
    """[B,T,L,H] hidden states of chosen layers, only when a part asks for them."""
