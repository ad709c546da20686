"""A whole run in this process: composed, checked and assembled as the command does it."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from selfdistill_cli.batching.collate import collate, updates
from selfdistill_cli.config import rules
from selfdistill_cli.config.compose import compose
from selfdistill_cli.core.protocols import Env
from selfdistill_cli.core.types import Batch, Group
from selfdistill_cli.methods.pairs import pair_numbers
from selfdistill_cli.tracking.progress import make_display
from selfdistill_cli.training.interrupts import Interrupts
from selfdistill_cli.training.judge import Judged
from selfdistill_cli.training.run import Run
from selfdistill_cli.training.run_directory import RunDirectory
from selfdistill_cli.training.start import assemble

SMALL = (
    "run.num_threads=1", "run.trajectories_every=0", "tracker=none", "batch.tasks_per_step=4",
    "eval.every=0", "env.sandbox.workers=1", "checkpoint.every=1",
)  # fmt: skip


def composed(root: Path, *words: str, name: str = "r"):
    """Settings and container of a command line, checked."""
    found = compose([*SMALL, f"run.root={root}", f"run.name={name}", *words])
    rules.check(found.settings)
    return found


@contextlib.contextmanager
def environment(root: Path, *words: str) -> Iterator[Env]:
    """The environment of the settings, closed afterwards."""
    env = composed(root, *words).settings.env.build()
    try:
        yield env
    finally:
        env.close()


@contextlib.contextmanager
def assembled(root: Path, env: Env, *words: str, name: str = "r") -> Iterator[Run]:
    """A run that is ready for `training.loop.train`, or for a step by hand."""
    found = composed(root, *words, name=name)
    display = make_display(found.settings.run.max_steps, io.StringIO(), True)
    directory = RunDirectory(root / name)
    directory.open(found.container, found.settings.resume)
    try:
        torch.manual_seed(0)  # adapters are drawn from the stream that a process starts with
        interrupts = Interrupts(display.message)
        yield assemble(found.settings, directory, env, display, interrupts)
    finally:
        display.close()
        directory.close()


def batches_of(run: Run, judged: Judged, rows: int = 64) -> list[Batch]:
    """All samples of a step as the micro-batches of one update, at most `rows` samples each."""
    samples = run.method.learned_from(judged.groups)
    settings = replace(run.settings.batch, micro_batch_rows=rows, epochs=1, mini_batches=1)
    found = list(updates(samples, settings, (0,), pair_numbers(samples)))
    (update,) = found or [[]]
    views = run.method.term_views
    return [
        collate(samples, view_names=views, unembeddings=judged.unembeddings) for samples in update
    ]


def loss_of(run: Run, batches: Sequence[Batch], step: int = 1) -> float:
    """The loss of one update; gradients are added to those of the policy."""
    method, total = run.method, 0.0
    counts = method.counts(batches)
    for batch in batches:
        output = run.engine.forward(batch, method.forward_needs | {"entropy"})
        loss, _ = method.total_loss(output, batch, counts, step)
        loss.backward()
        total += float(loss.detach())
    return total


def gradients(run: Run) -> dict[str, torch.Tensor]:
    """Gradients of the policy by name, cleared afterwards."""
    found = {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in run.policy.named_parameters()
    }
    run.policy.zero_grad(set_to_none=True)
    return found


@torch.no_grad()
def perturb(run: Run, scale: float = 0.02) -> None:
    """Move the student, so that copies made before differ from it and ratios from 1."""
    generator = torch.Generator().manual_seed(0)
    for parameter in run.policy.parameters():
        size = max(0.5, float(parameter.std(correction=0)))
        parameter.add_(scale * size * torch.randn(parameter.shape, generator=generator))


def without(group: Group, sibling: int) -> Group:
    """The group as if the last trajectory had never been."""
    assert sibling == len(group.trajectories) - 1, "numbers of the others must stay"
    return replace(
        group,
        trajectories=group.trajectories[:-1],
        scores=group.scores[:-1],
        samples=tuple(s for s in group.samples if s.sibling != sibling),
    )
