"""Rules across parts: combinations that are legal key by key and still make no sense.

Each rule is a small function from the settings to messages. Settings classes are asked for what
they declare (`group_relative`, `plays`, `needs_critic`, `view`), never for their names, so rules
hold for the parts of users too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from selfdistill_cli.config.method_rules import METHOD_RULES, has_critic, is_active
from selfdistill_cli.config.server_rules import SERVER_RULES
from selfdistill_cli.config.value_rules import VALUE_RULES, Rule
from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.tracking.settings import each_tracker
from selfdistill_cli.training.settings import TrainSettings


def check(settings: TrainSettings) -> None:
    """Raise ConfigError with every violated rule."""
    found = violations(settings)
    if found:
        raise ConfigError("\n".join(found))


def violations(settings: TrainSettings) -> list[str]:
    """Return the messages of all violated rules."""
    return [message for rule in RULES for message in rule(settings)]


def group_of_one(settings: TrainSettings) -> Iterator[str]:
    """An advantage relative to the siblings needs siblings."""
    method: Any = settings.method
    if not _plays(settings) or method.group_size > 1:
        return
    if getattr(method.advantage, "group_relative", False):
        yield (
            "method.group_size: got 1, but method.advantage compares each episode with its "
            "siblings, so every advantage would be 0; use method.group_size=2 or more, or "
            "method/advantage=gae method/terms=actor_critic"
        )
    elif method.drop_flat_groups:
        yield (
            "method.drop_flat_groups: got true with method.group_size=1: a group of one is always "
            "flat, so nothing would be learned; use method.drop_flat_groups=false"
        )


def greedy_groups(settings: TrainSettings) -> Iterator[str]:
    """Greedy siblings are all equal."""
    method: Any = settings.method
    relative = getattr(method.advantage, "group_relative", False)
    if _plays(settings) and relative and getattr(settings.rollout, "temperature", 1.0) == 0:
        yield (
            "rollout.temperature: got 0, but greedy siblings are all the same, so every advantage "
            "would be 0; use rollout.temperature=1.0"
        )


def critic(settings: TrainSettings) -> Iterator[str]:
    """Whoever reads the critic's values needs a term that trains it."""
    method: Any = settings.method
    if has_critic(method):
        return
    remedy = "needs the critic, which the term `value` trains; add method/terms=actor_critic"
    if getattr(method.advantage, "needs_critic", False):
        yield f"method.advantage: {type(method.advantage).__name__} {remedy}"
    if getattr(method.credit, "v_orig", None) == "critic":
        yield f"method.credit.v_orig: 'critic' {remedy}, or use method.credit.v_orig=group_mean"


def advantage_and_source(settings: TrainSettings) -> Iterator[str]:
    """Demonstrations carry no reward, so nothing can be compared or reinforced."""
    method: Any = settings.method
    if _plays(settings):
        return
    if getattr(method.advantage, "group_relative", False) or getattr(
        method.advantage, "needs_critic", False
    ):
        yield (
            "method.source: demonstrations have no reward for method.advantage to compare; use "
            "method/source=play, or method/advantage=none with method/terms=cross_entropy"
        )


def something_to_learn(settings: TrainSettings) -> Iterator[str]:
    """At least one term has a coefficient other than 0."""
    method: Any = settings.method
    if not any(is_active(term) for term in method.terms.values()):
        known = ", ".join(f"method.terms.{name}.coefficient" for name in method.terms)
        yield (
            "method.terms: every coefficient is 0, so there is nothing to minimise; set one of "
            f"{known or 'them: method/terms=policy'}"
        )


def room_for_a_turn(settings: TrainSettings) -> Iterator[str]:
    """One turn must fit into the context."""
    rollout: Any = settings.rollout
    longest = getattr(rollout, "max_context_tokens", None)
    if longest is not None and rollout.max_new_tokens >= longest:
        yield (
            f"rollout.max_new_tokens: got {rollout.max_new_tokens}, which leaves no room for a "
            f"prompt in rollout.max_context_tokens={longest}; use a smaller number"
        )


def turns_for_attempts(settings: TrainSettings) -> Iterator[str]:
    """An environment that gives several attempts needs as many turns, and the room for them."""
    rollout: Any = settings.rollout
    attempts = getattr(settings.env, "attempts", None)
    if not isinstance(attempts, int):
        return
    turns = getattr(rollout, "max_turns", attempts)
    if turns < attempts:
        yield (
            f"env.attempts: got {attempts}, but rollout.max_turns={turns} ends an episode before; "
            f"use rollout.max_turns={attempts}, or env.attempts={turns}"
        )
    longest = getattr(rollout, "max_context_tokens", None)
    if attempts > 1 and longest is not None and attempts * rollout.max_new_tokens >= longest:
        yield (
            f"env.attempts: got {attempts}, but {attempts} answers of rollout.max_new_tokens="
            f"{rollout.max_new_tokens} and what is said between them do not fit into "
            f"rollout.max_context_tokens={longest}; raise the latter or lower one of the others"
        )


def tracker_packages(settings: TrainSettings) -> Iterator[str]:
    """A tracker whose package is missing is told before anything is started."""
    for key, tracker in each_tracker(settings.tracker).items():
        package = getattr(tracker, "package", None)
        if package is not None:
            try:
                package.require(key)
            except ConfigError as error:
                yield str(error)


def _plays(settings: TrainSettings) -> bool:
    return bool(getattr(getattr(settings.method, "source", None), "plays", True))


RULES: tuple[Rule, ...] = (
    *VALUE_RULES,
    group_of_one,
    greedy_groups,
    critic,
    advantage_and_source,
    something_to_learn,
    room_for_a_turn,
    turns_for_attempts,
    tracker_packages,
    *METHOD_RULES,
    *SERVER_RULES,
)
