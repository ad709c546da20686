"""Assemble a run from settings, train it, close everything, and say what came of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

from selfdistill_cli.core.durations import seconds_of
from selfdistill_cli.core.errors import Preempted, RunError, SelfDistillError
from selfdistill_cli.core.parts import build_part
from selfdistill_cli.core.protocols import Env, Reward, RolloutEngine
from selfdistill_cli.core.seeds import seed_for
from selfdistill_cli.core.settings import ViewSettings
from selfdistill_cli.methods.method import Method
from selfdistill_cli.policies.causal import CausalPolicy
from selfdistill_cli.rewards.errors import ErrorPolicy
from selfdistill_cli.rewards.guarded import GuardedReward
from selfdistill_cli.tracking.metrics_file import MetricsFile
from selfdistill_cli.tracking.sinks import finish_sinks
from selfdistill_cli.training.background import Writer
from selfdistill_cli.training.checkpoints import Checkpoints
from selfdistill_cli.training.copies import open_copies
from selfdistill_cli.training.files import write_json
from selfdistill_cli.training.initial import (
    base_fingerprint,
    check_same_weights,
    initial_weights,
    path_fingerprint,
    policy_folder,
    weights_fingerprint,
)
from selfdistill_cli.training.interrupts import Interrupts, is_unattended
from selfdistill_cli.training.judge import reads_hidden
from selfdistill_cli.training.loop import train
from selfdistill_cli.training.run import Run
from selfdistill_cli.training.run_directory import RunDirectory
from selfdistill_cli.training.settings import TrainSettings
from selfdistill_cli.training.summary import summarize_run
from selfdistill_cli.training.surroundings import batch_job
from selfdistill_cli.training.teachers import build_models, build_scorers, build_slow_copy
from selfdistill_cli.training.workshop import TrainingWorkshop
from selfdistill_cli.training.world import World


def run_training(
    settings: TrainSettings, container: Mapping[str, Any], display: Any, world: World | None = None
) -> None:
    """Train, or continue, the run that the settings describe; `settings.run.name` is set.

    Every rank of `world` calls this with equal settings. Raises Preempted after a checkpoint on
    request, and errors of core.errors otherwise.
    """
    assert settings.run.name is not None, "the caller names the run"
    world = world or World()
    prepare_process(settings.run.num_threads)
    directory = RunDirectory(Path(settings.run.root) / settings.run.name)
    world.from_first(lambda: directory.open(container, settings.resume))
    world.log_to(directory.path / "ranks")
    try:
        alone = world.size == 1
        with _interrupts(settings, display, alone) as interrupts, _closing(settings.env) as env:
            read_tasks(settings, env)
            world.from_first(
                lambda: directory.check_contents(contents_of(env, settings), settings.resume)
            )
            run = assemble(settings, directory, env, display, interrupts, world)
            check_same_weights(run.policy, world)
            display.start(_introduction(run, directory))
            with _status(run, directory):
                train(run)
        if world.is_first:
            display.finish(summarize_run(run))
    finally:
        display.close()
        directory.close()


@contextlib.contextmanager
def _status(run: Run, directory: RunDirectory) -> Iterator[None]:
    """The run's status in run.json and in the sinks, which rank 0 keeps."""
    status, failure = "failed", None
    if run.world.is_first:
        directory.update_identity(status="running", attempt=directory.attempt, error=None)
    try:
        yield
        status = "finished"
    except Preempted:
        status = "preempted"
        raise
    except SelfDistillError as error:
        kind, attempt = type(error).__name__, directory.attempt
        failure = {"kind": kind, "message": str(error), "attempt": attempt}
        raise
    finally:
        run.writer.end(run.display.message)
        health = finish_sinks(run.sinks, status)
        # Where the disk is full the first error is the one to tell.
        with contextlib.suppress(*([RunError] if status == "failed" else [])):
            if run.world.is_first:
                directory.update_identity(status=status, error=failure, trackers=health)


def prepare_process(num_threads: int) -> None:
    """Give torch a fixed number of threads and keep the libraries' progress bars off the screen.

    The same number of threads gives the same bytes; more than the cores only spin.
    """
    torch.set_num_threads(num_threads)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    disable_progress_bar()
    if not torch.cuda.is_available():
        # Saving a model imports deepspeed where it is installed, which guesses aloud otherwise.
        os.environ.setdefault("DS_ACCELERATOR", "cpu")


def _interrupts(settings: TrainSettings, display: Any, alone: bool) -> Interrupts:
    """One of several ranks never gives a step up: the others would wait for it."""
    run = settings.run
    if run.grace is not None and not alone:
        display.message("run.grace is for one process: with several, a step always ends")
    limits = (run.stop_after, run.grace if alone else None)
    seconds = (None if x is None else seconds_of(x) for x in limits)
    return Interrupts(display.message, *seconds, insisting=not is_unattended())


@contextlib.contextmanager
def _closing(settings: Any) -> Iterator[Env]:
    env: Env = build_part("env", settings, Env)
    try:
        yield env
    finally:
        env.close()


def read_tasks(settings: TrainSettings, env: Env) -> None:
    """Read the splits that the run needs: a mistake in the data is told before models are loaded.

    Raises ConfigError, DataError.
    """
    source: Any = settings.method.source  # pyright: ignore
    splits = [getattr(source, name, None) for name in ("split", "demonstrations")]
    if settings.eval.every > 0:
        splits.append(settings.eval.panel)
    for split in splits:
        if split is not None:
            env.tasks(split)


def contents_of(env: Env, settings: TrainSettings) -> dict[str, str]:
    """Fingerprints of what keys point at: data, and the weights that a run starts from.

    An environment may have `fingerprint()`. Frozen views, and what lies under adapters, are built
    again on every resume, so paths must still mean the same weights.
    """
    fingerprint = getattr(env, "fingerprint", None)
    found = {} if fingerprint is None else {"env.data": fingerprint()}
    base = getattr(settings.policy, "path", None)
    if base is not None and Path(base).is_dir():  # where it is missing, its reader says so
        found["policy.path"] = base_fingerprint(Path(base))
    method: Any = settings.method
    views = {f"method.views.{name}.path": view for name, view in method.views.items()}
    paths = {
        "policy.init_from": getattr(settings.policy, "init_from", None),
        "teacher.path": getattr(settings.teacher, "path", None),
        **{key: view.path for key, view in views.items()},
    }
    for name, component in getattr(settings.reward, "components", {}).items():
        place = getattr(component, "path", None)
        if place is not None:
            found[f"reward.components.{name}.path"] = path_fingerprint(Path(place))
    for key, path in paths.items():
        if path is not None:
            found[key] = weights_fingerprint(policy_folder(path, settings.run.root, key))
    return found


def assemble(
    settings: TrainSettings,
    directory: RunDirectory,
    env: Env,
    display: Any,
    interrupts: Interrupts,
    world: World | None = None,
) -> Run:
    """Build every room's object and join them."""
    world = world or World()
    method = Method(settings.method, view_of(settings.teacher))  # pyright: ignore
    policy = build_policy(settings, method)
    models = build_models(method.views, policy, settings.run.root)
    engine = settings.zero.build(
        policy, settings.optim, settings.run.max_steps, settings.seed, world
    )
    if engine.config is not None:
        config = engine.config
        world.from_first(lambda: write_json(directory.path / "deepspeed.json", config))
    slow_copy = build_slow_copy(method, policy, engine, settings.run.root)
    scorers = build_scorers(method.views, policy, engine, slow_copy, models, world)
    errors = directory.path / "reward_errors.jsonl"
    workshop = build_workshop(settings, env, policy, method, errors, world)
    checkpoints = Checkpoints(directory.path / "checkpoints", settings.checkpoint)
    return Run(
        settings=settings,
        directory=directory.path,
        policy=policy,
        engine=engine,
        method=method,
        workshop=workshop,
        scorers=scorers,
        slow_copy=slow_copy,
        checkpoints=checkpoints,
        writer=Writer(checkpoints, policy.save, settings.checkpoint.background),
        guards=settings.guards.build(display.message),
        metrics_file=MetricsFile(directory.path / "metrics.jsonl"),
        sinks=open_copies(settings, directory, display, interrupts) if world.is_first else [],
        display=display,
        interrupts=interrupts,
        world=world,
    )


def view_of(teacher: Any) -> ViewSettings | None:
    """The view that the group `teacher` describes, None for teacher=none."""
    return teacher if isinstance(teacher, ViewSettings) else None


def build_policy(settings: TrainSettings, method: Method) -> CausalPolicy:
    """The student with its initial weights, and a critic if a term needs one."""
    torch.manual_seed(seed_for(settings.seed, "policy"))  # adapters and heads start at random
    policy: CausalPolicy = settings.policy.build()
    policy.temperature = settings.rollout.temperature  # pyright: ignore
    initial_weights(policy, getattr(settings.policy, "init_from", None), settings.run.root)
    if method.needs_critic and policy.value_head is None:
        policy.add_value_head()
    return policy


def build_reward(settings: TrainSettings, errors: Path | None) -> GuardedReward:
    """The reward of the settings behind its guard; `errors` is where failed samples are saved."""
    guards = settings.guards
    policy = ErrorPolicy(
        on_error=guards.on_reward_error,
        retries=guards.reward_retries,
        error_budget=guards.reward_error_budget,
        key="guards.on_reward_error",
        budget_key="guards.reward_error_budget",
    )
    return GuardedReward(build_part("reward", settings.reward, Reward), policy, errors)


def build_workshop(
    settings: TrainSettings,
    env: Env,
    policy: CausalPolicy,
    method: Method,
    errors: Path | None = None,
    world: World | None = None,
) -> TrainingWorkshop:
    """Join environment, rollout engine, chat template and reward."""
    world = world or World()
    return TrainingWorkshop(
        seed=settings.seed,
        group_size=settings.method.group_size,  # pyright: ignore
        tasks_per_step=settings.batch.tasks_per_step,  # pyright: ignore
        env=env,
        reward=build_reward(settings, errors),
        chat=policy.chat,
        rollout=_rollout(settings, policy, world),
        rollout_settings=settings.rollout,
        with_hidden=reads_hidden(method),
        world=world,
    )


def _rollout(settings: TrainSettings, policy: CausalPolicy, world: World) -> RolloutEngine:
    """The engine that samples; one that says so is told of the other ranks."""
    more = (world,) if getattr(settings.rollout, "knows_ranks", False) else ()
    return build_part("rollout", settings.rollout, RolloutEngine, policy, *more)


def _introduction(run: Run, directory: RunDirectory) -> dict[str, Any]:
    num_parameters = sum(p.numel() for p in run.policy.parameters())
    return {
        "run": directory.path.name,
        "directory": str(directory.path),
        "method": run.method.settings.name,
        "env": run.workshop.env.name,
        "sandbox": getattr(run.workshop.env, "isolation", None),
        "parameters": num_parameters,
        "device": str(run.engine.device),
        **({"ranks": run.world.size} if run.world.size > 1 else {}),
        **({"slurm": job} if (job := batch_job()) else {}),
        "total_steps": run.settings.run.max_steps,
    }
