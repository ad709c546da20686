"""What a part asks of a scoring pass besides log-probabilities, declared once, computed once.

A need is a word (`hidden`, `entropy`, `values`, `values_detached`; `key_tokens` and `line_starts`
of the sampled text) or one of the classes below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Direction = Literal["forward", "reverse", "jsd"]
Support = Literal["full", "teacher_topk", "student_topk"]


@dataclass(frozen=True, kw_only=True)
class TopNeed:
    """The K likeliest tokens of every state and the mass of all others."""

    support: Support
    """Whose likeliest tokens: `teacher_topk`, or `student_topk` (fixed when judging)."""
    topk: int
    """K."""
    temperature: float
    """Divides the logits."""


@dataclass(frozen=True, kw_only=True)
class DivergenceNeed:
    """Divergence between the student and a view, per token, over the vocabulary, in nats."""

    view: str
    """Name of the view."""
    direction: Direction
    """forward KL(view || student), reverse KL(student || view), or the generalised JSD."""
    alpha: float
    """Weight of the view in the mixture of the JSD."""
    support: Support
    """The whole vocabulary, or K tokens and a tail bucket."""
    topk: int
    """K, unused with full support."""
    temperature: float
    """Divides the logits of both."""

    @property
    def top(self) -> TopNeed | None:
        """What the view must keep, None with full support (then: its hidden states)."""
        if self.support == "full":
            return None
        return TopNeed(support=self.support, topk=self.topk, temperature=self.temperature)


@dataclass(frozen=True, kw_only=True)
class LayerNeed:
    """Hidden states of chosen layers, to be matched with those of a view."""

    view: str
    """Name of the view."""
    layers: tuple[int, ...]
    """Indices into the model's list of hidden states: 0 the embeddings, -1 the last layer."""


Need = str | DivergenceNeed | LayerNeed
Needs = frozenset[Need]
