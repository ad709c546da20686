"""A credit of one's own: early tokens count more. Settings and part in one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from selfdistill_cli.core.protocols import Metrics
from selfdistill_cli.core.settings import Settings, in_range
from selfdistill_cli.core.types import Group, Sample


@dataclass(frozen=True, kw_only=True)
class EarlyTokensSettings(Settings):
    """Weights that fall over the answer, from 1 + strength to 1 - strength."""

    implementation: ClassVar[str] = "early_tokens:EarlyTokens"

    strength: float
    """How much more the first token counts than the middle one, from 0 (uniform) to 1."""
    decay: float
    """Share of the remembered answer length that each step keeps."""

    def __post_init__(self) -> None:
        in_range(self, 0, 1, "strength", "decay")


class EarlyTokens:
    """A * w; w falls along a line that reaches 1 at half of the usual answer's length."""

    needs = frozenset()

    def __init__(self, settings: EarlyTokensSettings):
        self.settings = settings
        self.length = 16.0

    def reweight(self, groups: Sequence[Group], step: int) -> tuple[list[Group], Metrics]:
        """Multiply advantages by the weights; never change a sample in place."""
        changed = [replace(g, samples=tuple(map(self._weighted, g.samples))) for g in groups]
        return changed, {"credit/usual_length": self.length}

    def _weighted(self, sample: Sample) -> Sample:
        assert sample.advantages is not None
        s, place = self.settings, np.cumsum(sample.action_mask) - 1
        weights = np.clip(1 + s.strength * (1 - 2 * place / self.length), 0, 2)
        weights = np.where(sample.action_mask, weights, 0).astype(np.float32)
        seen = {**sample.weights, "credit": weights}
        return replace(sample, advantages=sample.advantages * weights, weights=seen)

    def after_step(self, groups: Sequence[Group], step: int) -> Metrics:
        """Remember how long answers usually are."""
        lengths = [int(s.action_mask.sum()) for group in groups for s in group.samples]
        if lengths:
            decay = self.settings.decay
            self.length = decay * self.length + (1 - decay) * float(np.mean(lengths))
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What the next step depends on."""
        return {"length": self.length}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.length = float(state["length"])
