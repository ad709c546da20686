"""The loop: this is the whole experiment."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import torch

from selfdistill_cli.batching.collate import Unit, collate, updates
from selfdistill_cli.core.errors import ServerError
from selfdistill_cli.core.protocols import Sums
from selfdistill_cli.core.types import Batch, Sample
from selfdistill_cli.methods.pairs import pair_numbers
from selfdistill_cli.rewards.errors import RewardError
from selfdistill_cli.training.disk_budget import check_room_for_run
from selfdistill_cli.training.evaluation import (
    Evaluation,
    evaluate,
    evaluate_teacher,
    evaluation_due,
)
from selfdistill_cli.training.interrupts import GivenUp
from selfdistill_cli.training.judge import Judged, judge
from selfdistill_cli.training.run import Run
from selfdistill_cli.training.sampler_gap import SamplerGap
from selfdistill_cli.training.summary import (
    Tally,
    collection_metrics,
    memory_metrics,
    readings_of,
)


def train(run: Run) -> None:
    """Train to run.max_steps. Safe to kill at any moment and call again."""
    start = run.restore()
    if start < run.settings.run.max_steps:
        check_room_for_run(run)
    if start == 0:
        run.log_baseline()
    for step in range(start + 1, run.settings.run.max_steps + 1):
        run.world.begin_step(step)
        run.workshop.reward.begin_step()
        try:
            times = take_step(run, step)
        except (RewardError, ServerError):
            run.rescue(step)
            raise
        except GivenUp:
            run.give_up(step)
        run.stop_if_lost(step)
        run.interrupts.step_ended(times["time/step_s"])
        if run.world.agree(run.interrupts.requested):
            run.preempt(step)
    run.settle()


def take_step(run: Run, step: int) -> dict[str, float]:
    """One collection with all its updates; return the seconds of its phases."""
    clock = Clock()
    learning_rate = run.engine.begin_step(step)

    # 1. Act: the source gives groups: episodes played and scored, demonstrations, or replays.
    run.phase("acting")
    with run.interrupts.may_give_up():  # until here nothing of the run's state has changed
        groups = run.method.source.groups(run.workshop, step)
    run.workshop.rest()
    clock.lap("act")

    # 2. Judge: whatever the parts need of the sampled tokens; then what is each token worth?
    run.phase("judging")
    judged = judge(run, groups, step)
    clock.lap("judge")

    # 3. Learn: each term is a sum, divided by its own denominator over the whole update.
    run.phase("learning")
    update_metrics = learn(run, judged, step)
    clock.lap("learn")

    # 4. Publish: weights to the rollout, evaluation, then everything that follows the student.
    due = evaluation_due(run.settings.eval, step, run.settings.run.max_steps)
    evaluation = published(run, step, due)
    clock.lap("eval")
    metrics = {
        **collection_metrics(groups, step),
        **judged.metrics,
        **update_metrics,
        "policy/lr": learning_rate,
    }
    readings = readings_of(step, metrics, evaluation)
    metrics |= run.method.after_step(judged.groups, run.slow_copy, readings)
    clock.lap("follow")
    if due and run.lost_server is None:
        with run.enduring():
            metrics |= evaluate_teacher(run, step)
    clock.lap("eval")
    times = clock.metrics()
    machine = {**times, **memory_metrics(run.world)}
    run.finish_step(step, judged.groups, metrics, evaluation, machine)
    return times


def published(run: Run, step: int, due: bool) -> Evaluation | None:
    """Publish the weights; evaluate them if that is due and the rollout engine can be reached."""
    with run.enduring():
        run.publish(step)
        return evaluate(run, step) if due else None
    return None


def learn(run: Run, judged: Judged, step: int) -> dict[str, float]:
    """Epochs x mini-batches of updates on the step's samples; return means over them."""
    samples = run.method.learned_from(judged.groups)
    tally, norms = Tally(), list[float]()
    gap = SamplerGap.of(judged.groups, run.workshop.version)
    method, engine = run.method, run.engine
    key = (run.settings.seed, "updates", step)
    for update in updates(samples, run.settings.batch, key, pair_numbers(samples), run.world.mine):
        first = gap if not norms else None
        for sums in accumulate(run, judged, update, step, first):
            tally.add(sums)
            losses = {n: total for n, (total, _) in sums.items() if n != "policy/entropy"}
            run.guards.check_loss(step, losses)
        norms.append(engine.step())
        method.after_update(run.slow_copy)
    means = tally.means()
    norm = sum(norms) / len(norms) if norms else 0.0
    return {
        **means,
        **method.loss_metrics(means, step),
        **gap.metrics(run.world.gather),
        "policy/grad_norm": norm,
        "policy/updates": len(norms),
    }


def accumulate(
    run: Run, judged: Judged, update: list[Unit], step: int, gap: SamplerGap | None = None
) -> list[Sums]:
    """Gradients of this rank's micro-batches of one update; return the sums of all ranks'.

    `gap` compares the update's log-probabilities with those recorded at sampling.
    """
    method, engine, found = run.method, run.engine, list[Sums]()
    needs = method.forward_needs | {"entropy"}
    batches = [_collated(run, judged, rows) for rows in update]
    counts = method.counts(batches, run.world.sum)
    num_own = len(batches)
    if engine.lockstep:
        passes = max(run.world.gather(num_own))
        batches += [_silent(run, judged)] * (passes - num_own)
    for i, batch in enumerate(batches):
        output = engine.forward(batch, needs)
        loss, sums = method.total_loss(output, batch, counts, step)
        if i < num_own:
            if gap is not None:
                gap.add(update[i], output)
            entropy = float(output.entropy.detach().sum()) if output.entropy is not None else 0.0
            found.append({**sums, "policy/entropy": (entropy, float(batch.action_mask.sum()))})
        engine.backward(loss, last=i == len(batches) - 1)
    return [sums for own in run.world.gather(found) for sums in own]


def _collated(run: Run, judged: Judged, rows: Sequence[Sample]) -> Batch:
    return collate(
        rows,
        view_names=run.method.term_views,
        device=run.engine.device,
        unembeddings=judged.unembeddings,
    )


def _silent(run: Run, judged: Judged) -> Batch:
    """A micro-batch without an active token: its loss is 0 and has the graph of any other."""
    shortest = min(run.method.learned_from(judged.groups), key=lambda s: len(s.token_ids))
    batch = _collated(run, judged, [shortest])
    nobody = torch.zeros_like(batch.action_mask)
    return replace(batch, action_mask=nobody, pairs=torch.full_like(batch.pairs, -1))


class Clock:
    """Wall-clock laps of one step, in seconds; everything here is logged under `time/`."""

    def __init__(self) -> None:
        self.start = self.last = time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """Close a phase; a name that comes again adds up."""
        now = time.perf_counter()
        self.laps[f"time/{name}_s"] = self.laps.get(f"time/{name}_s", 0.0) + now - self.last
        self.last = now

    def metrics(self) -> dict[str, float]:
        """All laps and the whole step."""
        return {**self.laps, "time/step_s": time.perf_counter() - self.start}
