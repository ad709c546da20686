"""What sets each recipe apart: how it is seen in metrics.jsonl, and how it is taken out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Lines = Sequence[dict[str, Any]]
SIBLINGS = ("method.group_size=4",)
SEVERAL_UPDATES = ("batch.mini_batches=4", "optim.lr=3e-3")
"""Later updates of a step see ratios away from 1, so that a clip has something to clip."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One recipe, how to see its part at work and how to do without it."""

    sees: Callable[[Lines], bool]
    """Whether the lines of steps 1 to 3 show the recipe's own part at work."""
    without: Sequence[tuple[str, ...]]
    """Overrides that take a part out; each must change the weights."""
    words: tuple[str, ...] = SIBLINGS
    """Overrides of the recipe itself: small groups, quick schedules."""


def peak(key: str, above: float = 0.0) -> Callable[[Lines], bool]:
    """Whether the largest magnitude of a metric exceeds a bound."""
    return lambda lines: max(abs(line.get(key, 0.0)) for line in lines) > above


def moves(key: str) -> Callable[[Lines], bool]:
    """Whether a metric differs between steps."""
    return lambda lines: len({line[key] for line in lines}) > 1


def both(*checks: Callable[[Lines], bool]) -> Callable[[Lines], bool]:
    """Whether all checks hold."""
    return lambda lines: all(check(lines) for check in checks)


def is_share(key: str) -> Callable[[Lines], bool]:
    """Whether a metric is strictly between 0 and 1 at some step."""
    return lambda lines: any(0.0 < line[key] < 1.0 for line in lines)


LEARNS = peak("policy/grad_norm")
SPREADS = both(LEARNS, peak("credit/within_traj_std", 1e-4))
CLIPS = both(LEARNS, peak("policy/clip_fraction"))
FOLLOWS = both(LEARNS, peak("teacher/distance", 1e-6))
TEACHES = both(LEARNS, peak("teacher/kl", 1e-3))
PAIRS = both(LEARNS, peak("policy/pair_margin", 1e-6))
NO_RAMP = ("method.credit.ramp=0.0",)

RECIPES: dict[str, Recipe] = {
    "a2c": Recipe(
        sees=both(LEARNS, peak("policy/value_mse")),
        without=[("method.terms.policy_gradient.loss_type=ppo",)],
        words=(*SIBLINGS, *SEVERAL_UPDATES),
    ),
    "bcsd": Recipe(
        sees=both(SPREADS, peak("credit/augmented_gap", 1e-3), peak("credit/pruned_gap", 1e-3)),
        without=[NO_RAMP, ("method.credit.alpha=1.0",)],
    ),
    "bidirectional": Recipe(
        sees=both(FOLLOWS, peak("loss/distill", 1e-7), moves("loss/coefficient_distill")),
        without=[
            ("method.terms.distill.coefficient=0.0",),
            ("method.terms.distill.coefficient=0.1",),
        ],
    ),
    "cispo": Recipe(
        sees=CLIPS,
        without=[("method.terms.policy_gradient.ratio_max=100.0",)],
        words=(*SIBLINGS, *SEVERAL_UPDATES, "method.terms.policy_gradient.ratio_max=1.0"),
    ),
    "dapo": Recipe(
        sees=CLIPS,
        without=[
            ("method.terms.policy_gradient.clip_high=1e-4",),
            ("method.source.max_rounds=1", "method.drop_flat_groups=false"),
        ],
        # Narrower than shipped: few updates of a sure policy move no ratio by a fifth.
        words=(
            *SIBLINGS, *SEVERAL_UPDATES, "method.terms.policy_gradient.clip_low=1e-4",
            "method.terms.policy_gradient.clip_high=1e-2",
        ),
    ),
    "dr_grpo": Recipe(
        sees=LEARNS, without=[("method.terms.policy_gradient.loss_type=grpo",)],
    ),
    "gear": Recipe(sees=SPREADS, without=[NO_RAMP]),
    "gear_dpo": Recipe(
        sees=both(SPREADS, PAIRS), without=[("method.terms.pairwise.use_credit=false",)]
    ),
    "gear_pairwise": Recipe(
        sees=both(SPREADS, PAIRS), without=[("method.terms.pairwise.use_credit=false",)]
    ),
    "gear_paper": Recipe(
        sees=both(SPREADS, peak("teacher/kl", 1e-3), is_share("credit/segment_fraction")),
        without=[NO_RAMP],
    ),
    "gear_plateau": Recipe(
        sees=both(SPREADS, moves("credit/ramp")),
        without=[NO_RAMP],
        words=(
            *SIBLINGS, "method.credit.ramp.window=1", "method.credit.ramp.patience=1",
            "method.credit.ramp.min_gain=2.0", "method.credit.ramp.steps=1",
        ),
    ),
    "gear_ppo": Recipe(sees=both(SPREADS, peak("policy/value_mse")), without=[NO_RAMP]),
    "gear_rank": Recipe(sees=SPREADS, without=[NO_RAMP]),
    "gkd": Recipe(
        sees=TEACHES,
        without=[("method.source.on_policy=1.0",), ("teacher.hints=[]",)],
        words=(),
    ),
    "grpo": Recipe(sees=LEARNS, without=[("method/advantage=group_mean",)]),
    "gspo": Recipe(
        sees=CLIPS,
        without=[("method.terms.policy_gradient.loss_type=gspo_token",
                  "method.terms.policy_gradient.clip_low=0.2",
                  "method.terms.policy_gradient.clip_high=0.2")],
        words=(*SIBLINGS, *SEVERAL_UPDATES),
    ),
    "online_dpo": Recipe(sees=PAIRS, without=[("method.terms.pairwise.view=null",)]),
    "opsd": Recipe(sees=TEACHES, without=[("teacher.hints=[]",)]),
    "ppo": Recipe(
        sees=both(LEARNS, peak("policy/value_mse"), moves("policy/value_mse")),
        without=[("method.terms.value.coefficient=0.0",)],
    ),
    "rloo": Recipe(sees=LEARNS, without=[("method/advantage=group_zscore",)]),
    "rlsd": Recipe(sees=both(SPREADS, TEACHES), without=[NO_RAMP]),
    "sdar": Recipe(
        sees=both(TEACHES, is_share("teacher/gate")),
        without=[("method.terms.gated.coefficient=0.0",)],
    ),
    "sdpo": Recipe(
        sees=both(FOLLOWS, TEACHES, is_share("teacher/informed_fraction"),
                  is_share("teacher/taught_fraction")),
        without=[("method.sync.decay=1.0",), ("method.terms.distill.only_informed=false",)],
        words=("method.group_size=2",),  # a lone success has no sibling to learn from
    ),
    "sft": Recipe(
        sees=both(LEARNS, peak("loss/cross_entropy")),
        without=[("method.source.hints.answer=0.5",)],
        words=(),
    ),
    "sft_winners": Recipe(
        sees=both(LEARNS, peak("loss/cross_entropy")),
        without=[("method.advantage.only_solved=false", "method.advantage.fraction=1.0")],
    ),
    "sspo": Recipe(
        sees=both(
            LEARNS, peak("teacher/kl", 1e-3), is_share("credit/weight_min"),
            peak("credit/steps_per_sample", 1.0), peak("teacher/synced"),
        ),
        without=[NO_RAMP, ("method.sync.every=50",)],
        words=(*SIBLINGS, "method.sync.every=1"),
    ),
    "step_kd": Recipe(
        sees=both(FOLLOWS, peak("loss/distill", 1e-7), moves("loss/coefficient_distill")),
        without=[("method.terms.distill.coefficient=0.0",)],
    ),
    "step_kd_free": Recipe(
        sees=both(FOLLOWS, TEACHES), without=[("method.sync.decay=0.0",), ("teacher.hints=[]",)]
    ),
}  # fmt: skip

PLAIN: dict[str, str] = {
    "bcsd": "grpo",
    "gear": "grpo",
    "gear_paper": "grpo",
    "rlsd": "grpo",
    "sspo": "grpo",
    "gear_ppo": "ppo",
}
"""Recipes that are another one, bit for bit, when the ramp of their credit is 0."""
