"""Degenerate groups follow one rule in every recipe, and are counted.

Flat groups have advantage 0 and stay in the denominators unless they are dropped; distillation
keeps them; rejected trajectories leave everything.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from assembled import assembled, batches_of

from selfdistill_cli.core.types import Score
from selfdistill_cli.methods.arrays import all_samples
from selfdistill_cli.training.judge import judge
from selfdistill_cli.training.loop import learn
from selfdistill_cli.training.summary import collection_metrics, readings_of

GROUP = "method.group_size=4"


@pytest.fixture(scope="module")
def played(folder, env):
    """A step's groups of the embedded policy, hidden states included, one of them not flat."""
    with assembled(folder, env, "method=gear", GROUP, name="played") as run:
        return run.method.source.groups(run.workshop, 1)


def flat(group):
    """The group with the same reward for every trajectory."""
    return replace(group, scores=tuple(replace(s, total=0.5) for s in group.scores))


def rejected(group, siblings):
    """The group with some trajectories rejected: no total score, no sample."""
    scores = tuple(
        Score(total=None, success=0.0, parts={}) if i in siblings else score
        for i, score in enumerate(group.scores)
    )
    samples = tuple(s for s in group.samples if s.sibling not in siblings)
    return replace(group, scores=scores, samples=samples)


def cut(group, size):
    """The first trajectories of a group."""
    kept = group.trajectories[:size]
    return replace(
        group, trajectories=kept, scores=group.scores[:size],
        samples=tuple(s for s in group.samples if s.sibling < size),
    )  # fmt: skip


RECIPES = (
    "a2c", "bcsd", "bidirectional", "cispo", "dapo", "dr_grpo", "gear", "gear_dpo",
    "gear_pairwise", "gear_paper", "gear_plateau", "gear_ppo", "gear_rank", "gspo", "grpo",
    "online_dpo", "opsd", "ppo", "rloo", "rlsd", "sdar", "sdpo", "sft_winners", "sspo", "step_kd",
    "step_kd_free",
)  # fmt: skip
"""All that play every sample (gkd and sft: see tests/recipes)."""


def stepped(run, groups, step):
    """One step on given groups; metrics, and the judged samples."""
    judged = judge(run, groups, step)
    metrics = {**collection_metrics(groups, 1), **judged.metrics, **learn(run, judged, step)}
    metrics |= run.method.after_step(
        judged.groups, run.slow_copy, readings_of(step, metrics, None)
    )
    assert all(np.isfinite(value) for value in metrics.values()), metrics
    return judged, metrics


@pytest.mark.parametrize("method", RECIPES)
def test_degenerate_groups_follow_one_rule(folder, env, played, method):
    with assembled(folder, env, f"method={method}", GROUP, name=f"flat_{method}") as run:
        everyone = set(range(4))
        nobody = [rejected(group, everyone) for group in played]
        for groups in (nobody, []):
            _, metrics = stepped(run, groups, 1)
            assert metrics["policy/updates"] == 0
        assert collection_metrics(nobody, 1)["rollout/rejected"] == 16
        assert collection_metrics(nobody, 1)["rollout/flat_group_fraction"] == 1
        _, metrics = stepped(run, [cut(group, 1) for group in played], 2)
        assert metrics["rollout/flat_group_fraction"] == 1
        judged, metrics = stepped(run, [flat(group) for group in played], 3)
        assert metrics["rollout/flat_group_fraction"] == 1
        recipe = run.method.settings
        taught = {"distill", "gated"} & set(run.method.terms)
        if getattr(recipe.advantage, "group_relative", False) and method != "sft_winners":
            assert all((s.advantages == 0).all() for s in all_samples(judged.groups))
            assert (metrics["policy/grad_norm"] > 0) == bool(taught)
        dropped = recipe.drop_flat_groups or run.method.compares_pairs or method == "sft_winners"
        if not dropped:
            assert len(all_samples(judged.groups)) == 16


@pytest.mark.parametrize("method", RECIPES)
def test_a_rejected_trajectory_is_as_if_it_had_never_been(folder, env, played, method):
    with assembled(folder, env, f"method={method}", GROUP, name=f"rejected_{method}") as run:
        found, metrics = stepped(run, [rejected(group, {3}) for group in played], 1)
        assert metrics["rollout/rejected"] == 4
    with assembled(folder, env, f"method={method}", GROUP, name=f"absent_{method}") as run:
        expected, _ = stepped(run, [cut(group, 3) for group in played], 1)
    pairs = list(zip(all_samples(found.groups), all_samples(expected.groups), strict=True))
    assert pairs
    for sample, other in pairs:
        assert (sample.advantages == other.advantages).all()
        assert sample.pair == other.pair
        assert all((sample.weights[n] == w).all() for n, w in other.weights.items())


def test_flat_groups_stay_in_the_denominators_unless_they_are_dropped(folder, env, played):
    steps = {}
    for drop in ("false", "true"):
        words = ["method=dr_grpo", GROUP, f"method.drop_flat_groups={drop}"]
        with assembled(folder, env, *words, name=f"drop_{drop}") as run:
            judged = judge(run, [flat(played[0]), *played[1:]], 1)
            counts = run.method.counts(batches_of(run, judged))
            steps[drop] = counts["policy_gradient"], len(all_samples(judged.groups))
    assert steps["false"][1] == 16
    assert steps["true"][1] < 16
    assert steps["false"][0] / steps["true"][0] == steps["false"][1] / steps["true"][1]
