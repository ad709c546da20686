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


def products_need_plain_weights(settings: TrainSettings) -> Iterator[str]:
    """An average of products is added to the base's matrices, which must not be in few bits."""
    sync: Any = settings.method.sync  # pyright: ignore
    kind = getattr(settings.policy, "quantization", "none")
    if getattr(sync, "lora_average", "factors") == "product" and kind != "none":
        yield (
            f"method.sync.lora_average: got product, but policy.quantization={kind} keeps the base "
            "in few bits, to which no product can be added; use method.sync.lora_average=factors, "
            "or policy.quantization=none"
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
        for key in ("importance_clip", "sampler_clip"):
            clip = getattr(term, key, None)
            if clip is not None and getattr(method.source, "demonstrates", False):
                yield (
                    f"method.terms.{name}.{key}: got {clip}, but method.source gives "
                    "demonstrations, which no policy sampled; use null"
                )
        clip = getattr(term, "sampler_clip", None)
        if clip is not None and method.old_logprobs == "sampled":
            yield (
                f"method.terms.{name}.sampler_clip: got {clip}, but with method.old_logprobs="
                "sampled the ratio is taken against the rollout's own numbers already; use "
                "method.old_logprobs=recomputed, or null"
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


def advantages_are_read_and_given(settings: TrainSettings) -> Iterator[str]:
    """A policy gradient needs advantages, and weights need advantages to multiply."""
    method: Any = settings.method
    if getattr(method.advantage, "gives_nothing", False):
        for name, term in method.terms.items():
            if hasattr(term, "loss_type") and is_active(term):
                yield (
                    f"method.terms.{name}: a policy gradient with method/advantage=none is always "
                    "0; use method/advantage=group_zscore, or leave the term out"
                )
        if getattr(method.credit, "varies_by_token", True):
            yield (
                "method.credit: spreads an advantage, but method/advantage=none gives none; use "
                "method/credit=uniform"
            )


def failures_are_not_imitated(settings: TrainSettings) -> Iterator[str]:
    """Cross-entropy on what the student played needs a choice of what is worth imitating."""
    method: Any = settings.method
    plays = getattr(method.source, "plays", True)
    demonstrates = getattr(method.source, "demonstrates", False)
    chooses = getattr(method.advantage, "chooses_samples", False)
    for name, term in method.terms.items():
        if getattr(term, "imitates", False) and plays and not demonstrates and not chooses:
            yield (
                f"method.terms.{name}: imitates every episode, failures too; use "
                "method/advantage=winners (method=sft_winners), or method/source=dataset"
            )


def demonstrations_have_no_value(settings: TrainSettings) -> Iterator[str]:
    """A critic would learn that demonstrations, which carry no reward, are worth nothing."""
    method: Any = settings.method
    critic = getattr(method.advantage, "needs_critic", False)
    if critic and getattr(method.source, "demonstrates", False) and method.source.plays:
        yield (
            "method.source: demonstrations have no reward, so the critic of method.advantage would "
            "take them for failures; use method/source=play, or method/advantage=group_zscore"
        )


def controllers_follow_a_divergence(settings: TrainSettings) -> Iterator[str]:
    """A controller keeps a KL at a target; other terms are no KL."""
    method: Any = settings.method
    for name, term in method.terms.items():
        follows = getattr(getattr(term, "coefficient", None), "follows_own_term", False)
        score = getattr(term, "support", "") == "sampled" and term.estimator == "score"
        is_kl = getattr(term, "is_divergence", False) and not score
        if follows and not is_kl:
            yield (
                f"method.terms.{name}.coefficient: got a controller, which keeps a KL in nats per "
                "token at a target, but the term is none; use a number, linear or cosine"
            )


def sampled_is_reverse(settings: TrainSettings) -> Iterator[str]:
    """The sampled estimators know one direction."""
    for name, term in settings.method.terms.items():  # pyright: ignore
        sampled = getattr(term, "support", None) == "sampled"
        if sampled and term.direction != "reverse" and is_active(term):
            yield (
                f"method.terms.{name}.direction: got '{term.direction}', but support=sampled "
                "estimates the reverse KL; use direction=reverse, or support=full"
            )


def paths_are_read(settings: TrainSettings) -> Iterator[str]:
    """The student's own weights, and the base under its adapters, come from no path."""
    meanings = {"policy": "the student itself", "base": "the base under the student's adapters"}
    views = {f"method.views.{n}": v for n, v in settings.method.views.items()}  # pyright: ignore
    for where, view in {**views, "teacher": settings.teacher}.items():
        path, weights = getattr(view, "path", None), getattr(view, "weights", "")
        if path is not None and weights in meanings:
            yield (
                f"{where}.path: got '{path}', but {where}.weights={weights} is "
                f"{meanings[weights]}; use {where}.weights=frozen"
            )


def rollback_needs_evaluations(settings: TrainSettings) -> Iterator[str]:
    """The copy that a roll-back returns to is chosen by evaluations."""
    sync: Any = settings.method.sync  # pyright: ignore
    if getattr(sync, "rollback_kl", None) is not None and settings.eval.every == 0:
        yield (
            "method.sync.rollback_kl: goes back to the copy of the best evaluation, but "
            "eval.every=0 makes none; use eval.every=25, or method.sync.rollback_kl=null"
        )


def rounds_are_played(settings: TrainSettings) -> Iterator[str]:
    """Dynamic sampling belongs to the source `play`."""
    source: Any = settings.method.source  # pyright: ignore
    only_once = getattr(source, "replays", False) or getattr(source, "demonstrates", False)
    if only_once and getattr(source, "max_rounds", 1) > 1:
        yield (
            f"method.source.max_rounds: got {source.max_rounds}, which only method/source=play "
            "reads; use 1"
        )


METHOD_RULES: tuple[Callable[[TrainSettings], Iterator[str]], ...] = (
    views_exist,
    slow_copy_exists,
    signals_are_distributions_over_candidates,
    gate_needs_evaluations,
    skills_are_policies,
    products_need_plain_weights,
    pairs_are_ranked,
    token_weights_reach_tokens,
    controllers_have_a_reading,
    behaviour_is_known,
    advantages_are_read_and_given,
    failures_are_not_imitated,
    demonstrations_have_no_value,
    controllers_follow_a_divergence,
    sampled_is_reverse,
    paths_are_read,
    rollback_needs_evaluations,
    rounds_are_played,
)
