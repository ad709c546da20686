"""Numbers about a step that several parts have a share in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from selfdistill_cli.core.types import Group, Sample
from selfdistill_cli.losses.divergence import k1, k3
from selfdistill_cli.methods.arrays import all_samples, masks, pad, student_logprobs

TEACHER = "teacher"


def teacher_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """`teacher/kl` (reverse, sampled k3, nats per token) and the gap log teacher - log student."""
    played = [group for group in groups if group.trajectories]
    scored: list[Sample] = [s for s in all_samples(played) if TEACHER in s.views]
    if not scored:
        return {}
    mask = masks(scored)
    student = student_logprobs(scored)
    teacher = pad([sample.views[TEACHER].logprobs for sample in scored])
    gap = k1(teacher, student, mask)[mask]
    informed = sum(sample.views[TEACHER].informed for sample in scored)
    return {
        "teacher/kl": float(k3(student, teacher, mask).sum() / mask.sum().clamp(min=1)),
        "teacher/gap_mean": float(gap.mean()) if len(gap) else 0.0,
        "teacher/gap_std": float(gap.std(correction=0)) if len(gap) else 0.0,
        "teacher/informed_fraction": informed / len(scored),
    }


def distill_ratio(
    terms: Mapping[str, Any], coefficients: Mapping[str, float], means: Mapping[str, float]
) -> dict[str, float]:
    """Terms that read the teacher against the policy gradient: at most about 1 is healthy.

    The mean policy-gradient loss is near 0 by construction, so its mean magnitude is compared.
    """
    taught = [n for n, term in terms.items() if TEACHER in getattr(term, "views", ())]
    magnitude = means.get("policy/loss_magnitude", 0.0) * abs(
        coefficients.get("policy_gradient", 0.0)
    )
    if not taught or magnitude <= 0:
        return {}
    total = sum(abs(coefficients[n] * means.get(f"loss/{n}", 0.0)) for n in taught)
    return {"loss/distill_ratio": total / magnitude}
