"""A run: every room's object, joined. Assembled once, then handed to the loop."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import torch

from selfdistill_cli.core.errors import Preempted, ServerError
from selfdistill_cli.core.types import Group
from selfdistill_cli.methods.method import Method
from selfdistill_cli.policies.causal import CausalPolicy
from selfdistill_cli.teachers.weight_copy import WeightCopy
from selfdistill_cli.tracking.metrics_file import MetricsFile
from selfdistill_cli.tracking.sinks import OpenSink
from selfdistill_cli.tracking.trajectories import write_trajectories
from selfdistill_cli.training.background import Writer
from selfdistill_cli.training.checkpoints import POLICY, TEACHER, Checkpoint, Checkpoints
from selfdistill_cli.training.engine import Engine
from selfdistill_cli.training.evaluation import (
    Evaluation,
    evaluate,
    evaluate_copy,
    evaluate_teacher,
)
from selfdistill_cli.training.files import write_folder
from selfdistill_cli.training.guards import Guards
from selfdistill_cli.training.interrupts import Interrupts
from selfdistill_cli.training.scorers import Scorer
from selfdistill_cli.training.served import ServedScorer
from selfdistill_cli.training.settings import TrainSettings
from selfdistill_cli.training.workshop import TrainingWorkshop
from selfdistill_cli.training.world import World


@dataclass(kw_only=True)
class Run:
    """What the loop reads."""

    settings: TrainSettings
    """The checked configuration."""
    directory: Path
    """The run directory."""
    policy: CausalPolicy
    """The student."""
    engine: Engine
    """Trains the student."""
    method: Method
    """The recipe."""
    workshop: TrainingWorkshop
    """Plays, demonstrates, scores."""
    scorers: Mapping[str, Scorer | ServedScorer]
    """Under whose weights each view is scored, by view name."""
    slow_copy: WeightCopy | None
    """The weights that follow the student, None without a sync."""
    checkpoints: Checkpoints
    """The run's checkpoints."""
    writer: Writer
    """Writes them."""
    guards: Guards
    """Watches for a run that went wrong."""
    metrics_file: MetricsFile
    """The truth about the run."""
    sinks: Sequence[OpenSink]
    """Copies of it elsewhere."""
    display: Any
    """What a person sees."""
    interrupts: Interrupts
    """Whether someone asked to stop."""
    world: World
    """The other ranks; only the first one writes."""
    best: dict[str, float] = field(default_factory=lambda: {"step": -1.0, "value": float("-inf")})
    """Best value of checkpoint.best_metric so far, and its step."""
    total_tokens: int = 0
    """Tokens sampled since the first step."""
    lost_server: ServerError | None = None
    """Why this step could not be published or evaluated; it ends with a checkpoint all the same."""

    def _checkpoint_to_restore(self) -> Checkpoint | None:
        back = self.settings.resume.step
        if back is None:
            return self.checkpoints.newest(self.display.message)
        return self.checkpoints.rewind(back)

    def restore(self) -> int:
        """Load the newest whole checkpoint; return its step, 0 if there is none."""
        first = self.world.from_first
        checkpoint = first(self._checkpoint_to_restore)
        if checkpoint is None:
            first(lambda: self.metrics_file.truncate_after(-1))
            self.load_rollout(0)
            return 0
        state = checkpoint.state()
        self.policy.load(checkpoint.policy)
        self.engine.load_state_dict(state["engine"])
        self.method.load_state_dict(state["method"])
        if self.slow_copy is not None:
            self.slow_copy.load_state_dict(state["slow_copy"])
        self.guards.load_state_dict(state["guards"])
        self.workshop.reward.load_state_dict(state.get("reward", {}))
        self.best = dict(state["best"])
        self.total_tokens = state["total_tokens"]
        first(lambda: self.metrics_file.truncate_after(checkpoint.step))
        self.publish(checkpoint.step)
        self.display.message(_continuation(checkpoint, self.settings.run.max_steps))
        return checkpoint.step

    def phase(self, name: str) -> None:
        """Say what is happening now, to people and to the other ranks."""
        self.display.phase(name)
        self.world.note(name)

    def publish(self, step: int) -> None:
        """Give the student's weights to the rollout engine."""
        self.engine.refresh()
        self.load_rollout(step)

    def load_rollout(self, step: int) -> None:
        """Give the weights that the policy holds now to the rollout engine."""
        self.workshop.rollout.load_weights(self.engine.stream_weights(), version=step)
        self.workshop.version = step

    def log_baseline(self) -> None:
        """Evaluate before the first step, so that every gain has a start to be measured from."""
        if self.settings.eval.every == 0:
            self.method.sync.start(None)
            return
        evaluation = evaluate(self, 0)
        own = self.slow_copy is not None and self.slow_copy.distance() > 0
        score = evaluate_copy(self, 0).success if own else evaluation.success
        self.method.sync.start(score)
        metrics = {**evaluation.metrics(), **evaluate_teacher(self, 0)}
        self._log(0, self._with_failures(metrics))

    def finish_step(
        self,
        step: int,
        groups: Sequence[Group],
        metrics: dict[str, float],
        evaluation: Evaluation | None,
        clock: Mapping[str, float],
    ) -> None:
        """Check, log one line, write trajectories and, if due, a checkpoint."""
        watched = self.workshop.reward.watched
        self.guards.check_reward(step, metrics.get(watched), watched)
        self.guards.check_totals(step, metrics)
        self.guards.check_teacher(step, metrics.get("teacher/informed_fraction"))
        self.guards.check_ranking(step, metrics)
        self.total_tokens += int(metrics.get("tokens/sampled", metrics["tokens/trained"]))
        metrics = {**metrics, "tokens/total": float(self.total_tokens)}
        metrics = self._with_failures(metrics)
        if evaluation is not None:
            metrics = {**metrics, **evaluation.metrics()}
        self._write_trajectories(step, groups)  # before the line: copies show them beside it
        self._log(step, {**metrics, **clock, "time/tokens_per_s": _speed(metrics, clock)})
        self._save_skill(step)
        improved = self._note_best(step, metrics)
        if improved or self.checkpoints.due(step, self.settings.run.max_steps):
            self.save(step)

    def _with_failures(self, metrics: dict[str, float]) -> dict[str, float]:
        """Add the reward's failures: always where episodes were scored, else if there are any."""
        failures = self.world.from_first(self.workshop.reward.metrics)
        told = "reward/success" in metrics or any(failures.values())
        return {**metrics, **failures} if told else metrics

    def _log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.world.from_first(lambda: self._write_line(step, metrics))

    def _write_line(self, step: int, metrics: Mapping[str, float]) -> None:
        self.writer.check()  # a write that failed ends the run now, not at the next save
        self.metrics_file.append(step, metrics)
        for sink in self.sinks:
            sink.log(step, metrics)
        self.display.step(step, metrics)

    def _write_trajectories(self, step: int, groups: Sequence[Group]) -> None:
        every = self.settings.run.trajectories_every
        if every > 0 and (step % every == 0 or step == 1):
            path = self.directory / "trajectories" / f"step_{step:06d}.jsonl"
            decode, limit = self.policy.chat.decode, self.settings.run.trajectories_limit
            self.world.from_first(lambda: write_trajectories(path, groups, decode, limit))

    def _note_best(self, step: int, metrics: Mapping[str, float]) -> bool:
        value = metrics.get(self.settings.checkpoint.best_metric)
        if value is None or value <= self.best["value"]:
            return False
        self.best = {"step": float(step), "value": value}
        return True

    def save(self, step: int) -> None:
        """Write a checkpoint of everything that the next step depends on."""
        self.phase("saving")
        state = {
            "engine": self.engine.state_dict(),
            "method": self.method.state_dict(),
            "slow_copy": None if self.slow_copy is None else self.slow_copy.state_dict(),
            "guards": self.guards.state_dict(),
            "reward": self.workshop.reward.state_dict(),
            "best": self.best,
            "total_tokens": self.total_tokens,
        }
        self.world.from_first(lambda: self._write_checkpoint(step, state))

    def _write_checkpoint(self, step: int, state: dict[str, Any]) -> None:
        folders = {POLICY: self.policy.held()}
        if self.slow_copy is not None and self.slow_copy.is_policy:
            folders[TEACHER] = self._held_teacher(state["slow_copy"]["slow"])
        self.writer.save(step, folders, state, int(self.best["step"]))

    def _held_teacher(self, slow: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What the folder of the slow copy as a policy holds; `slow` is all of it."""
        assert self.slow_copy is not None
        with self.slow_copy.in_place_of(slow):
            return self.policy.held()

    def _save_skill(self, step: int) -> None:
        """Every so often the slow copy is kept for good: `policy.init_from=.../skills/NAME`."""
        every = getattr(self.settings.method.sync, "save_every", 0)  # pyright: ignore
        if every > 0 and step % every == 0:
            name = f"teacher_skill_step_{step:06d}"
            assert self.slow_copy is not None
            path, slow = self.directory / "skills" / name, self.slow_copy.state_dict()["slow"]
            self.world.from_first(lambda: self._write_skill(path, slow))

    def _write_skill(self, path: Path, slow: Mapping[str, torch.Tensor]) -> None:
        self.writer.wait()  # one thread at a time asks the libraries to write the policy
        tensors = self._held_teacher(slow)
        write_folder(path, lambda folder: self.policy.save(folder, tensors))

    def settle(self) -> None:
        """Wait until the last checkpoint is on the disk; raises RunError if it could not be."""
        self.world.from_first(self.writer.wait)

    @contextlib.contextmanager
    def enduring(self) -> Generator[None, None, None]:
        """Inside the block a lost server is noted: the step's updates are made and must be kept.

        All ranks leave the block alike, because what one of them is told all are told.
        """
        try:
            yield
        except ServerError as error:
            self.lost_server = error

    def stop_if_lost(self, step: int) -> None:
        """Keep the finished `step` and raise the error that was noted in it, if there was one."""
        if self.lost_server is not None:
            if step not in self.world.from_first(self.writer.steps):
                self.save(step)
                self.settle()
            raise self.lost_server

    def rescue(self, step: int) -> None:
        """Checkpoint the state before `step`, whose episodes could not be played or scored."""
        self.workshop.reward.rewind()
        if step > 1 and step - 1 not in self.world.from_first(self.writer.steps):
            self.save(step - 1)
            self.settle()

    def give_up(self, step: int) -> NoReturn:
        """Keep the state before `step`, which did not end within run.grace; raise Preempted."""
        self.rescue(step)
        kept = f"with a checkpoint of step {step - 1}" if step > 1 else "before the first step"
        raise Preempted(
            f"step {step} did not end within run.grace and was given up; stopped {kept} in "
            f"{self.directory}; the same command continues"
        )

    def preempt(self, step: int) -> None:
        """Write a checkpoint unless this step has one, then raise Preempted."""
        if step not in self.world.from_first(self.writer.steps):
            self.save(step)
            self.settle()
        if step < self.settings.run.max_steps:
            raise Preempted(
                f"stopped after step {step} of {self.settings.run.max_steps} with a checkpoint in "
                f"{self.directory}; the same command continues"
            )


def _continuation(checkpoint: Checkpoint, max_steps: int) -> str:
    if checkpoint.step < max_steps:
        return f"continuing after step {checkpoint.step} from {checkpoint.path}"
    return (
        f"already finished: step {checkpoint.step} of {max_steps}. For more, raise run.max_steps; "
        "for a new run, choose another seed or run.name."
    )


def _speed(metrics: Mapping[str, float], clock: Mapping[str, float]) -> float:
    """Sampled tokens per second of acting; trained ones per second of learning without acting."""
    if "tokens/sampled" in metrics:
        return metrics["tokens/sampled"] / max(clock["time/act_s"], 1e-9)
    return metrics["tokens/trained"] / max(clock["time/learn_s"], 1e-9)
