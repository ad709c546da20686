"""Rules across the parts of a method: what a view, a slow copy, a term or a coefficient needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from selfdistill_cli.core.errors import did_you_mean
from selfdistill_cli.core.settings import ViewSettings
from selfdistill_cli.training.settings import TrainSettings


def views_exist(settings: TrainSettings) -> Iterator[str]:
    """A part that reads a view needs a view of that name."""
    method: Any = settings.method
    teacher = isinstance(settings.teacher, ViewSettings)
    known = [*method.views, *(["teacher"] if teacher else [])]
    parts = {f"method.terms.{name}": t for name, t in method.terms.items() if is_active(t)}
    for where, part in {**parts, "method.credit": method.credit}.items():
        for field in getattr(part, "view_fields", ("view",)):
            view = getattr(part, field, None)
            if view is not None and view not in known:
                yield f"{where}.{field}: {_no_view(view, known)}"


def _no_view(view: str, known: Sequence[str]) -> str:
    if view == "teacher":
        return "got 'teacher', but teacher=none; choose teacher=hinted, slow_copy or frozen"
    near = did_you_mean(view, known)
    return f"got '{view}', expected one of {', '.join(known) or 'no views'}{near}"


def slow_copy_exists(settings: TrainSettings) -> Iterator[str]:
    """A view under the slow copy's weights needs a sync that keeps one."""
    method: Any = settings.method
    if getattr(method.sync, "keeps_copy", False):
        return
    views = {f"method.views.{name}": view for name, view in method.views.items()}
    for where, view in {**views, "teacher": settings.teacher}.items():
        if getattr(view, "weights", None) == "slow_copy":
            yield (
                f"{where}.weights: got 'slow_copy', but method/sync=none keeps none; use "
                f"method/sync=ema or hard_every, or {where}.weights=policy"
            )


def signals_are_distributions_over_candidates(settings: TrainSettings) -> Iterator[str]:
    """A step signal knows the student's likeliest tokens only."""
    method, teacher = settings.method, settings.teacher
    if not getattr(teacher, "is_signal", False):
        return
    if getattr(teacher, "needs_critic", False) and not has_critic(method):
        yield "teacher: q_values reads the critic; use a method with one, for example step_kd"
    if teacher.weights != "policy" or teacher.hints:  # pyright: ignore
        yield "teacher: a step signal takes its candidates from teacher.weights=policy, no hints"
    for name, term in method.terms.items():  # pyright: ignore
        if getattr(term, "view", None) != "teacher" or not hasattr(term, "support"):
            continue
        size = teacher.candidates  # pyright: ignore
        if (term.support, term.topk, term.temperature) != ("student_topk", size, 1.0):
            yield (
                f"method.terms.{name}: got support={term.support} topk={term.topk} temperature="
                f"{term.temperature}, but the teacher is a step signal over {size} candidates; use "
                f"support=student_topk topk={size} temperature=1.0"
            )


def gate_needs_evaluations(settings: TrainSettings) -> Iterator[str]:
    """A gate on the validation panel needs evaluations."""
    method: Any = settings.method
    if getattr(method.sync, "needs_evaluation", False) and settings.eval.every == 0:
        yield (
            "method.sync: the gate compares evaluations, but eval.every=0 makes none; use "
            "eval.every=25, or method/sync=ema"
        )


def skills_are_policies(settings: TrainSettings) -> Iterator[str]:
    """A slow head or a dense average of adapters is not a policy that can be saved."""
    sync: Any = settings.method.sync  # pyright: ignore
    if getattr(sync, "save_every", 0) == 0:
        return
    for key, whole in (("scope", "all"), ("lora_average", "factors")):
        if getattr(sync, key) != whole:
            yield (
                f"method.sync.save_every: got {sync.save_every}, but with method.sync.{key}="
                f"{getattr(sync, key)} the copy is not a policy of its own; use "
                f"method.sync.{key}={whole} or method.sync.save_every=0"
            )


def pairs_are_ranked(settings: TrainSettings) -> Iterator[str]:
    """A preference needs siblings of both signs."""
    method: Any = settings.method
    ranks = getattr(method.advantage, "ranks_siblings", False)
    for name, term in method.terms.items():
        if getattr(term, "pairs", False) and is_active(term) and not ranks:
            yield (
                f"method.terms.{name}: compares the best sibling with the worst, but "
                "method.advantage does not rank siblings; use method/advantage=pairwise"
            )


def token_weights_reach_tokens(settings: TrainSettings) -> Iterator[str]:
    """The sequence-level ratio averages token weights over the row: with mean 1 they vanish."""
    method: Any = settings.method
    for name, term in method.terms.items():
        varies = getattr(method.credit, "varies_by_token", True)
        if getattr(term, "loss_type", None) == "gspo" and varies:
            yield (
                f"method.terms.{name}.loss_type: got 'gspo', whose gradient averages the weights "
                "of method.credit over each answer; use gspo_token"
            )


def controllers_have_a_reading(settings: TrainSettings) -> Iterator[str]:
    """A controller follows its own term; the ramp of a credit has none."""
    method: Any = settings.method
    if getattr(getattr(method.credit, "ramp", None), "follows_own_term", False):
        yield (
            "method.credit.ramp: got a controller, which follows its own loss term, but a ramp "
            "has none; use method/coefficient@method.credit.ramp=linear, cosine or plateau"
        )


def behaviour_is_known(settings: TrainSettings) -> Iterator[str]:
    """A ratio to the policy that sampled needs its log-probabilities."""
    method: Any = settings.method
    if getattr(method.source, "replays", False) and method.old_logprobs == "recomputed":
        yield (
            "method.old_logprobs: got 'recomputed', which would forget the policy that sampled "
            "the replayed episodes; use method.old_logprobs=sampled"
        )
    for name, term in method.terms.items():
        clip = getattr(term, "importance_clip", None)
        if clip is not None and getattr(method.source, "demonstrates", False):
            yield (
                f"method.terms.{name}.importance_clip: got {clip}, but method.source gives "
                "demonstrations, which no policy sampled; use null"
            )


def has_critic(method: Any) -> bool:
    """Whether a term trains a critic."""
    return any(getattr(term, "needs_critic", False) for term in method.terms.values())


def is_active(term: Any) -> bool:
    """Whether a term's coefficient is ever other than 0."""
    coefficient = getattr(term, "coefficient", 1.0)
    values = [getattr(coefficient, name, None) for name in ("start", "peak", "end")]
    if all(value is None for value in values):
        return coefficient != 0
    return any(value for value in values)


METHOD_RULES: tuple[Callable[[TrainSettings], Iterator[str]], ...] = (
    views_exist,
    slow_copy_exists,
    signals_are_distributions_over_candidates,
    gate_needs_evaluations,
    skills_are_policies,
    pairs_are_ranked,
    token_weights_reach_tokens,
    controllers_have_a_reading,
    behaviour_is_known,
)
