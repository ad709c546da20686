"""From a step's groups and sums to one line of metrics, and from a run to its outcome."""

from __future__ import annotations

import math
import resource
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfdistill_cli.core.protocols import Readings, Sums
from selfdistill_cli.core.types import Finish, Group, Score, Stop, Trajectory
from selfdistill_cli.methods.advantage import is_flat
from selfdistill_cli.rewards.ranking import concordant_pairs
from selfdistill_cli.training.evaluation import Evaluation, evaluation_path, improvement
from selfdistill_cli.training.world import World

if TYPE_CHECKING:
    from selfdistill_cli.training.run import Run


class Tally:
    """Adds (sum, count) pairs over micro-batches and updates; divides once, at the end."""

    def __init__(self) -> None:
        self._sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def add(self, sums: Sums) -> None:
        """Add the diagnostics of one micro-batch."""
        for name, (total, count) in sums.items():
            self._sums[name][0] += total
            self._sums[name][1] += count

    def means(self) -> dict[str, float]:
        """Sum divided by count, for every name that was counted."""
        return {name: total / count for name, (total, count) in self._sums.items() if count > 0}


def collection_metrics(groups: Sequence[Group], step: int) -> dict[str, float]:
    """`reward/`, `rollout/` and `tokens/` of one step; of replayed groups only what is trained."""
    num_tokens = sum(int(s.action_mask.sum()) for g in groups for s in g.samples)
    metrics = {"tokens/trained": float(num_tokens)}
    groups = [g for g in groups if all(t.policy_version == step - 1 for t in g.trajectories)]
    trajectories = [t for group in groups for t in group.trajectories]
    if not trajectories:
        return metrics
    played = [group for group in groups if group.trajectories]
    lengths = [sum(len(turn.generation.action_ids) for turn in t.turns) for t in trajectories]
    count = len(trajectories)
    cut = sum(t.turns[-1].generation.finish is Finish.LENGTH for t in trajectories if t.turns)
    errors = sum(t.stop is Stop.ENV_ERROR for t in trajectories)
    return {
        **metrics,
        **_reward_metrics([score for group in groups for score in group.scores]),
        **_rank_metrics(played),
        "tokens/sampled": float(sum(lengths)),
        "rollout/episodes": float(count),
        "rollout/response_length": sum(lengths) / count,
        "rollout/turns": sum(len(t.turns) for t in trajectories) / count,
        **_invalid_actions(trajectories),
        "rollout/truncated_fraction": cut / count,
        "rollout/env_errors": float(errors),
        "rollout/flat_group_fraction": sum(map(is_flat, played)) / len(played),
    }


def _invalid_actions(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Mean number of turns of an episode that were no action, where the environment counts them."""
    counts = [t.outcome["invalid_actions"] for t in trajectories if "invalid_actions" in t.outcome]
    return {"rollout/invalid_actions": sum(counts) / len(counts)} if counts else {}


def _reward_metrics(scores: Sequence[Score]) -> dict[str, float]:
    totals = [score.total for score in scores if score.total is not None]
    names = sorted({name for score in scores for name in score.parts})
    metrics = {
        "reward/success": sum(score.success for score in scores) / len(scores),
        "rollout/rejected": float(len(scores) - len(totals)),
        "rollout/missing_components": float(sum(len(score.missing) for score in scores)),
    }
    for name in names:
        values = [score.parts[name] for score in scores if name in score.parts]
        metrics[f"reward/{name}"], metrics[f"reward/{name}_std"] = _moments(values)
    if totals:
        metrics["reward/mean"], metrics["reward/std"] = _moments(totals)
    return metrics


def _moments(values: Sequence[float]) -> tuple[float, float]:
    """Mean and population standard deviation."""
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((x - mean) ** 2 for x in values) / len(values))


def _rank_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Whether solved attempts have a higher total than their unsolved siblings."""
    found = [
        concordant_pairs([s.success for s in g.scores], [s.total for s in g.scores]) for g in groups
    ]
    pairs = sum(count for _, count in found)
    ranks = {"reward/rank_pairs": float(pairs)}
    if pairs:
        ranks["reward/rank_concordance"] = sum(right for right, _ in found) / pairs
    return ranks


def memory_metrics(world: World) -> dict[str, float]:
    """Peak resident memory of the process that has most of it, in MiB."""
    peak_kib = max(world.gather(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
    return {"memory/peak_rss_mb": round(peak_kib / 1024, 1)}


def readings_of(step: int, metrics: Mapping[str, float], evaluation: Evaluation | None) -> Readings:
    """What parts that follow a step may read of it."""
    losses = {
        name.removeprefix("loss/"): value
        for name, value in metrics.items()
        if name.startswith("loss/")
    }
    return Readings(
        step=step,
        losses=losses,
        reward=metrics.get("reward/mean"),
        teacher_kl=metrics.get("teacher/kl"),
        success=None if evaluation is None else evaluation.success,
    )


def summarize_run(run: Run) -> dict[str, Any]:
    """Start and end on the fixed panel, with intervals; where things lie."""
    summary: dict[str, Any] = {"directory": str(run.directory), "name": run.directory.name}
    first, last = (_evaluation(run.directory, step) for step in (0, run.settings.run.max_steps))
    for name, evaluation in (("start", first), ("end", last)):
        if evaluation is not None:
            low, high = evaluation.interval
            summary[name] = {"success": evaluation.success, "low": low, "high": high}
            summary["panel_tasks"] = len(evaluation.task_ids)
    if first is not None and last is not None and first.panel == last.panel:
        summary["improvement"] = improvement(first, last)
    return summary


def _evaluation(directory: Path, step: int) -> Evaluation | None:
    path = evaluation_path(directory, step)
    return Evaluation.load(path) if path.is_file() else None
