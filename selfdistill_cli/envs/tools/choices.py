"""A short list of concrete calls for policies that choose instead of write.

The right calls stand among those of a decoy, a second request of the same kind that is not the
task's, and among crossings of both. The two are treated alike, so that nothing but the request
tells which is which: not the place in the list, and not which call is most like the others.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from selfdistill_cli.core.seeds import seed_for
from selfdistill_cli.envs.agents.actions import Action


def unique(actions: Iterable[Action]) -> list[Action]:
    """Return the actions without repetitions, in their order."""
    found: list[Action] = []
    for action in actions:
        if all(action.call() != known.call() for known in found):
            found.append(action)
    return found


def choices_of(
    plans: Sequence[Sequence[Action]], place: int, *, limit: int, key: str
) -> list[Action]:
    """Return at most `limit` calls, among them `plans[0][place]`, in an order that a key decides.

    `plans`: the right one, then decoys, all of one length, of its kind or of kinds that take
    other tools. Where the calls of at least two plans fit, the list is the same in every turn and
    says nothing about what is next. Else it holds this turn's call and the ending of two plans,
    and some other calls.
    """
    endings = unique(plan[-1] for plan in plans)
    pair = unique(action for plan in plans[:2] for action in plan)
    drawn = random.Random(seed_for("tools choices", key))
    if len(pair) > limit:
        drawn = random.Random(seed_for("tools choices", key, place))
        first = [*(plan[place] for plan in plans[:2]), *(plan[-1] for plan in plans[:2])]
        found = [*first, *drawn.sample(pair, len(pair))]
    elif _tools(plans[0]) != _tools(plans[1]):
        rest = unique(action for plan in plans[2:] for action in plan)
        found = [*pair, *drawn.sample(rest, len(rest))]
    else:
        others = [*endings, *_crossings(*plans[:2])] if len(endings) > 1 else _mixed(plans, drawn)
        found = [*pair, *others]
    found = unique(found)[:limit]
    drawn.shuffle(found)
    return found


def _tools(plan: Sequence[Action]) -> list[str]:
    return [action.name for action in plan[:-1]]


def _mixed(plans: Sequence[Sequence[Action]], drawn: random.Random) -> Iterator[Action]:
    """Yield crossings of the first two plans and calls of the others, in a drawn order."""
    crossed = list(_crossings(*plans[:2]))
    rest = [action for plan in plans[2:] for action in plan]
    mixed = [*crossed, *rest]
    drawn.shuffle(mixed)
    yield from mixed


def _crossings(plan: Sequence[Action], decoy: Sequence[Action]) -> Iterator[Action]:
    """Yield both plans' calls with one argument exchanged, where that makes new calls."""
    for own, other in zip(plan, decoy, strict=True):
        if own.name != other.name or len(own.arguments) < 2:
            continue
        for name in own.arguments:
            if own.arguments[name] != other.arguments[name]:
                yield _with(own, name, other)
                yield _with(other, name, own)


def _with(action: Action, name: str, source: Action) -> Action:
    arguments = {**action.arguments, name: source.arguments[name]}
    return replace(action, arguments=arguments)


@dataclass(frozen=True, kw_only=True)
class Listed(Action):
    """A call that is chosen by its number, so that its text may be short."""

    def short(self) -> str:
        """Return the name and the values: `put belu 12`."""
        return " ".join([self.name, *map(str, self.arguments.values())])


@dataclass(frozen=True, kw_only=True)
class Written(Action):
    """A call that is written out: with one argument too, as a tool may have several parameters."""

    def short(self) -> str:
        """Return the name alone, or the call as JSON."""
        return json.dumps(self.call(), ensure_ascii=False) if self.arguments else self.name
