"""What a configuration asks for: copies, views, batches. Read from the settings alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from selfdistill_cli.core.errors import UserError
from selfdistill_cli.core.needs import DivergenceNeed
from selfdistill_cli.methods.method import Method
from selfdistill_cli.policies.lora import ADAPTER_CONFIG
from selfdistill_cli.training.initial import policy_folder
from selfdistill_cli.training.planning.shape import Shape, folder_bytes
from selfdistill_cli.training.scorers import MAX_SCORED_ROWS
from selfdistill_cli.training.settings import (
    Adam8bitSettings,
    OptimSettings,
    SgdSettings,
    TrainSettings,
)
from selfdistill_cli.training.start import view_of

WIDE = 4


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """Everything beside the model's shape that memory depends on."""

    length: int
    """Tokens of the longest sequence."""
    micro_rows: int
    """Sequences of that length in one micro-batch."""
    scored_rows: int
    """The same where nothing is learned."""
    cached_rows: int
    """Sequences that are sampled at the same time."""
    distinct_prompts: int
    """Distinct prompts of these; siblings share theirs in the first turn only."""
    new_tokens: int
    """Tokens of a turn."""
    episodes: int
    """Episodes of one step that a rank plays at most."""
    checkpointing: bool
    """Gradient checkpointing."""
    moments: float
    """Numbers that the optimizer keeps of a parameter: 2 for AdamW, 0 or 1 for SGD."""
    optimizer: str
    """adamw, adamw_8bit or sgd."""
    has_critic: bool
    """A value head."""
    slow_bytes: float
    """The slow copy, undivided, with what a rollback remembers."""
    copied_bytes: float
    """Copies of the initial policy and of the base under adapters, undivided."""
    frozen_bytes: float
    """Frozen teachers and references that are models of their own."""
    full_views: int
    """Views whose whole distributions a term reads."""
    divergences: int
    """Divergences over the vocabulary that terms compute."""


def read_requirements(
    settings: TrainSettings, shape: Shape, length: int | None, ranks: int = 1
) -> Requirements:
    """Read them; `length` stands for rollout.max_context_tokens if it is given.

    Tasks are shared out among ranks in whole groups.
    """
    rollout: Any = settings.rollout
    batch: Any = settings.batch
    method = Method(settings.method, view_of(settings.teacher))  # pyright: ignore
    longest = length or int(rollout.max_context_tokens)
    fits = max(1, int(batch.micro_batch_tokens) // longest)
    group: int = settings.method.group_size  # pyright: ignore
    episodes = math.ceil(int(batch.tasks_per_step) / ranks) * group
    rows = min(int(batch.micro_batch_rows), fits, episodes)
    cached = min(int(rollout.max_batch_rows), episodes)
    distinct = cached if rollout.max_turns > 1 else math.ceil(cached / group)
    divergences = [n for n in method.forward_needs if isinstance(n, DivergenceNeed)]
    return Requirements(
        length=longest,
        micro_rows=rows,
        scored_rows=min(rows, MAX_SCORED_ROWS),
        cached_rows=cached,
        distinct_prompts=distinct,
        new_tokens=int(rollout.max_new_tokens),
        episodes=episodes,
        checkpointing=bool(getattr(settings.policy, "gradient_checkpointing", False)),
        moments=_moments(settings.optim),
        optimizer=_optimizer(settings.optim),
        has_critic=method.needs_critic,
        slow_bytes=_slow(settings, shape),
        copied_bytes=_copied(method, shape),
        frozen_bytes=_frozen(settings, method, shape),
        full_views=len({n.view for n in divergences if n.top is None}),
        divergences=len(divergences),
    )


def moment_bytes(needs: Requirements, shape: Shape, has_master: bool) -> float:
    """The optimizer's state, undivided: torch keeps it in the dtype of the weights, on a float32
    master copy therefore in float32; 8-bit state takes one byte and a float32 scale for 256
    (arXiv 2110.02861)."""
    if needs.optimizer == "adamw_8bit":
        return needs.moments * shape.trained * (1 + WIDE / 256)
    return needs.moments * (shape.trained * WIDE if has_master else shape.trained_bytes)


def _moments(optim: Any) -> float:
    if isinstance(optim, SgdSettings):
        return 1.0 if optim.momentum > 0 else 0.0
    return 2.0


def _optimizer(optim: Any) -> str:
    if isinstance(optim, Adam8bitSettings):
        return "adamw_8bit"
    return "adamw" if isinstance(optim, OptimSettings) else "sgd"


def _slow(settings: TrainSettings, shape: Shape) -> float:
    """The slow copy is kept in float32: all that is trained, the head, or products of adapters."""
    sync: Any = settings.method.sync  # pyright: ignore
    if not getattr(sync, "keeps_copy", False):
        return 0.0
    entries = shape.trained
    if sync.scope == "head":
        entries = shape.vocabulary * shape.hidden
    elif sync.lora_average == "product" and shape.rank:
        entries = shape.adapted
    return entries * WIDE * (2 if sync.rollback_kl is not None else 1)


def _frozen(settings: TrainSettings, method: Method, shape: Shape) -> float:
    """Every frozen view with a path is a model."""
    return sum(
        _other(name, str(view.path), settings, shape)
        for name, view in method.views.items()
        if view.weights == "frozen" and view.path is not None and not _is_served(view)
    )


def _copied(method: Method, shape: Shape) -> float:
    """Views of the initial policy share one copy of what is trained; each of the base has one."""
    views = [view for view in method.views.values() if not _is_served(view)]
    num_copies = sum(view.weights == "base" for view in views)
    num_copies += any(view.weights == "frozen" and view.path is None for view in views)
    return float(num_copies * shape.trained_bytes)


def _is_served(view: Any) -> bool:
    """Whether its weights are on other machines."""
    return getattr(view, "is_served", False)


def _other(name: str, path: str, settings: TrainSettings, shape: Shape) -> float:
    """A model of its own. A run that does not exist yet is taken for one like the student."""
    key = "teacher.path" if name == "teacher" else f"method.views.{name}.path"
    try:
        folder = policy_folder(path, settings.run.root, key)
    except UserError:
        if "/" in path and not Path(path).exists():
            raise
        return shape.weights_bytes
    if (folder / ADAPTER_CONFIG).is_file():
        return shape.weights_bytes
    dtype = torch.float32 if shape.element_size == WIDE else torch.bfloat16
    return folder_bytes(folder, dtype)
