"""Rules about single values: numbers in range, names that exist, files that are there."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from selfdistill_cli.core.errors import did_you_mean
from selfdistill_cli.core.settings import Settings
from selfdistill_cli.training.settings import TrainSettings

Rule = Callable[[TrainSettings], Iterator[str]]

BOUNDS: Mapping[str, tuple[float, float]] = {
    "run.trajectories_every": (0, 1e9),
    "run.trajectories_limit": (0, 1e9),
    "method.group_size": (1, 1e5),
    "batch.tasks_per_step": (1, 1e6),
    "batch.epochs": (1, 1e4),
    "batch.mini_batches": (1, 1e6),
    "batch.micro_batch_rows": (1, 1e6),
    "batch.micro_batch_tokens": (1, 1e9),
    "rollout.max_new_tokens": (1, 1e7),
    "rollout.max_turns": (1, 1e5),
    "rollout.temperature": (0, 100),
    "rollout.max_batch_rows": (1, 1e6),
    "rollout.max_live_tokens": (1, 1e9),
    "rollout.env_wall_s": (0.01, 1e6),
    "rollout.env_cpu_s": (0.01, 1e6),
    "rollout.compact_fraction": (0, 1),
    "checkpoint.every": (1, 1e9),
    "checkpoint.keep": (1, 1e9),
    "eval.every": (0, 1e9),
    "eval.num_tasks": (1, 1e9),
    "eval.samples_per_task": (1, 1e5),
    "eval.temperature": (0, 100),
}
"""Smallest and largest legal values; a key that the chosen option does not have is passed over."""

RESULTS = ("eval/", "reward/")
"""Prefixes of the metrics that say how good a policy is."""


def bounds(settings: TrainSettings) -> Iterator[str]:
    """Counts and rates have a smallest value, and a largest one that no machine reaches."""
    for key, (low, high) in BOUNDS.items():
        group, _, name = key.partition(".")
        value = getattr(getattr(settings, group), name, None)
        if isinstance(value, int | float) and value < low:
            yield f"{key}: got {value}, expected at least {low:g}"
        elif isinstance(value, int | float) and value > high:
            yield f"{key}: got {value}, expected at most {high:g}"


def run_name(settings: TrainSettings) -> Iterator[str]:
    """A run's name is one folder under run.root."""
    name = settings.run.name
    if name is not None and (not re.fullmatch(r"[\w.+=,@-]+", name) or name.startswith(".")):
        yield (
            f"run.name: got '{name}', expected letters, digits and any of -_.+=,@ , not starting "
            "with a dot: it is the name of one folder under run.root"
        )


def best_metric(settings: TrainSettings) -> Iterator[str]:
    """The best checkpoint is chosen by a result, of which higher is better."""
    name = settings.checkpoint.best_metric
    if not name.startswith(RESULTS):
        yield (
            f"checkpoint.best_metric: got '{name}', expected a metric that starts with "
            f"{' or '.join(RESULTS)}, for example eval/success"
        )


def splits_exist(settings: TrainSettings) -> Iterator[str]:
    """A split must be one that the environment's class declares, if it declares any."""
    known = declared(settings.env, "splits")
    if not isinstance(known, tuple | list | frozenset | set):
        return
    for key, split in splits_asked(settings).items():
        if split is not None and split not in known:
            near = did_you_mean(split, known)
            yield f"{key}: got '{split}', expected one of {', '.join(sorted(known))}{near}"


def splits_asked(settings: TrainSettings) -> dict[str, str | None]:
    """Return which key asks for which split."""
    source: Any = settings.method.source  # pyright: ignore
    asked = {"eval.panel": settings.eval.panel if settings.eval.every else None}
    for name in ("split", "demonstrations"):
        asked[f"method.source.{name}"] = getattr(source, name, None)
    return asked


def paths_exist(settings: TrainSettings) -> Iterator[str]:
    """Files and folders that are read must be there; the name of a run may come to be later."""
    problem_with_data = getattr(settings.env, "problem_with_data", lambda: None)()
    if problem_with_data is not None:
        yield problem_with_data
    path = getattr(settings.policy, "path", None)
    if path is not None and not Path(path).is_dir():
        found = "is a file" if Path(path).is_file() else "nothing is there"
        yield (
            f"policy.path: got '{path}', {found}; expected the folder of a model (where that of a "
            "run was moved, its new place and 'resume.allow=[policy.path]')"
        )
    yield from _reward_paths(settings.reward)
    views: dict[str, Any] = dict(settings.method.views)  # pyright: ignore
    asked = {f"method.views.{name}.path": view.path for name, view in views.items()}
    asked["teacher.path"] = getattr(settings.teacher, "path", None)
    asked["policy.init_from"] = getattr(settings.policy, "init_from", None)
    for key, place in asked.items():
        # Without a slash it is the name of a run, which another command may be making.
        name = str(place).partition(":")[0]
        if place is not None and "/" in name and not Path(name).exists():
            yield f"{key}: got '{place}', nothing is there; expected a folder, or the name of a run"


def _reward_paths(reward: Any) -> Iterator[str]:
    for name, component in getattr(reward, "components", {}).items():
        problem = getattr(component, "problem_with_path", None)
        if problem is not None:
            yield f"reward.components.{name}.path: {problem} (docs/rewards.md)"


def hints_exist(settings: TrainSettings) -> Iterator[str]:
    """A hint that the environment cannot give would leave the prompt unchanged in silence."""
    method: Any = settings.method
    shares: dict[str, float] = dict(getattr(method.source, "hints", {}))
    if sum(shares.values()) > 1 or any(share < 0 for share in shares.values()):
        yield (
            f"method.source.hints: got shares {shares}; expected numbers of at least 0 that sum "
            "to at most 1"
        )
    asked: dict[str, Sequence[str]] = {
        "teacher.hints": getattr(settings.teacher, "hints", []),
        "method.source.hints": [kind for kind, share in shares.items() if share > 0],
        "eval.hints": settings.eval.hints,
        **{f"method.views.{name}.hints": view.hints for name, view in method.views.items()},
    }
    given = _hints_of(settings.env) if any(asked.values()) else None
    if given is None:
        return
    for key, hints in asked.items():
        for hint in hints:
            if hint not in given:
                yield (
                    f"{key}: the environment cannot give the hint '{hint}'; it gives: "
                    f"{', '.join(sorted(given)) or 'none'}"
                    + (UNSKILLED if hint == "pruned" and _unskilled(settings.env) else "")
                )


def key_tokens_exist(settings: TrainSettings) -> Iterator[str]:
    """Only an environment that knows its programs can say which tokens are key."""
    credit: Any = settings.method.credit  # pyright: ignore
    asked = getattr(credit, "targets", None) == "key_tokens"
    known = declared(settings.env, "hints") is not None  # else only its objects know
    if asked and known and declared(settings.env, "key_spans") is None:
        yield (
            "method.credit.targets: got 'key_tokens', but the environment names none; use "
            "env=code, or method.credit.targets=return_to_go"
        )


def _hints_of(env: Settings) -> frozenset[str] | None:
    """What it gives with these settings: nothing to prune without skills in the prompt."""
    hints = declared(env, "hints")
    if not isinstance(hints, set | frozenset):
        return None
    return frozenset(hints) - ({"pruned"} if _unskilled(env) else set[str]())


UNSKILLED = "; set env.prompt_skills=builtin, or a file of skills, and they can be pruned"


def _unskilled(env: Settings) -> bool:
    """Whether the environment could put skills into the prompt, and is not told to."""
    return getattr(env, "prompt_skills", "") is None


def declared(env: Settings, name: str) -> Any:
    """What the environment's class declares under a name; None if only its objects know."""
    module, _, class_name = env.implementation.partition(":")
    try:
        return getattr(getattr(importlib.import_module(module), class_name), name, None)
    except (ImportError, AttributeError):  # told with its reason when the environment is built
        return None


VALUE_RULES: tuple[Rule, ...] = (
    bounds,
    run_name,
    best_metric,
    splits_exist,
    paths_exist,
    hints_exist,
    key_tokens_exist,
)
