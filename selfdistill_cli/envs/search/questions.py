"""Questions of two to four hops over entities, each with one answer and the pages that prove it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from typing import Any

from selfdistill_cli.core.seeds import seed_for, stream
from selfdistill_cli.envs.search.facts import Entity
from selfdistill_cli.envs.search.pages import page_id, sentence
from selfdistill_cli.envs.search.wording import (
    AFTER,
    CLUES,
    LONGEST,
    MEASURES,
    PARTNER,
    PLACE,
    SHORTEST,
    TARGETS,
)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One page on the way."""

    query: str
    """What an expert searches."""
    page: str
    """Id of the page to open."""
    fact: str
    """The sentence on it that counts."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question and the way to its answer."""

    id: str
    kind: str
    """Which template."""
    hops: int
    """Facts to be found one after another."""
    text: str
    answers: tuple[str, ...]
    """Accepted answers, the best one first."""
    answer_kind: str
    """For example `capital`; which names are candidates."""
    steps: tuple[Step, ...]
    """What an expert opens, in order; its pages are the evidence."""
    entities: tuple[str, ...]
    """Names that the way passes through, sorted."""
    part: str
    """Split."""

    def meta(self) -> dict[str, Any]:
        """Return it as JSON."""
        lists = {"answers": list(self.answers), "entities": list(self.entities)}
        return {**asdict(self), **lists, "steps": [asdict(step) for step in self.steps]}

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> Question:
        """Return the question that `meta` wrote."""
        fields: dict[str, Any] = dict(meta)
        fields["steps"] = tuple(Step(**step) for step in meta["steps"])
        fields["answers"], fields["entities"] = tuple(meta["answers"]), tuple(meta["entities"])
        return cls(**fields)


@dataclass(frozen=True, kw_only=True)
class Found:
    """An entity that a part of a question describes, and the way to it."""

    entity: Entity
    asks: str
    steps: tuple[Step, ...]
    names: tuple[str, ...]


def _step(entity: Entity, attribute: str, query: str | None = None) -> Step:
    return Step(
        query=query or entity.name,
        page=page_id(entity, attribute),
        fact=sentence(entity, attribute),
    )


class World:
    """Entities, their clues and relations."""

    def __init__(self, entities: Sequence[Entity]) -> None:
        """Find out which values are true of one entity alone."""
        self.entities = entities
        self.by_name = {entity.name: entity for entity in entities}
        self.owners: dict[tuple[str, str, str], list[Entity]] = {}
        for entity in entities:
            for attribute in CLUES[entity.kind]:
                if attribute in entity.facts:
                    key = (entity.kind, attribute, str(entity.facts[attribute]).casefold())
                    self.owners.setdefault(key, []).append(entity)

    def clued(self, kind: str) -> Iterator[Found]:
        """Yield entities by each clue that fits no other."""
        for (of, attribute, _), owners in self.owners.items():
            if of == kind and len(owners) == 1:
                yield self._clued(owners[0], attribute)

    def _clued(self, entity: Entity, attribute: str) -> Found:
        clue, value = CLUES[entity.kind][attribute], entity.facts[attribute]
        return Found(
            entity=entity,
            asks=clue.asks.format(v=value),
            steps=(_step(entity, attribute, clue.query.format(v=value)),),
            names=(entity.name,),
        )

    def follow(self, start: Found, relation: str) -> Found | None:
        """Return what a relation leads to, None where that is unknown or not unique."""
        entity = start.entity
        form, attribute, name = {
            "longest": (LONGEST, "borders", _extreme(entity, max)),
            "shortest": (SHORTEST, "borders", _extreme(entity, min)),
            "partner": (PARTNER, "partner", entity.facts.get("partner")),
            "place": (PLACE, "place", entity.facts.get("place")),
            "after": (AFTER, "after", entity.facts.get("after")),
        }[relation]
        if name not in self.by_name or name in start.names:
            return None
        return Found(
            entity=self.by_name[name],
            asks=form.format(x=start.asks),
            steps=(*start.steps, _step(entity, attribute)),
            names=(*start.names, name),
        )

    def larger(self, pair: tuple[Found, Found], measure: str) -> Found | None:
        """Return the one of two with more of something, None if that is unknown or close."""
        first, second = pair
        kind = first.entity.kind
        if first.entity is second.entity or not all(measure in f.entity.facts for f in pair):
            return None
        more, less = sorted(pair, key=lambda f: -f.entity.facts[measure])
        if more.entity.facts[measure] < 1.05 * less.entity.facts[measure]:
            return None
        steps = [step for f in pair for step in (*f.steps, _step(f.entity, measure))]
        asks = f"{first.asks} or {second.asks}, whichever has the {MEASURES[kind][measure]}"
        return Found(
            entity=more.entity, asks=asks, steps=tuple(steps),
            names=(*first.names, *second.names),
        )  # fmt: skip

    def largest_neighbour(self, start: Found, measure: str) -> Found | None:
        """Return the neighbour with the most of something; all neighbours must be known."""
        names = list(start.entity.borders)
        known = [self.by_name[name] for name in names if name in self.by_name]
        known = [entity for entity in known if measure in entity.facts]
        if not 2 <= len(names) <= 3 or len(known) < len(names):
            return None
        most, second = sorted(known, key=lambda e: -e.facts[measure])[:2]
        if most.facts[measure] < 1.05 * second.facts[measure]:
            return None
        word = MEASURES["country"][measure].replace("larger", "largest")
        steps = [_step(entity, measure) for entity in sorted(known, key=lambda e: e.name)]
        return Found(
            entity=most,
            asks=f"the neighbour with the {word} of {start.asks}",
            steps=(*start.steps, _step(start.entity, "borders"), *steps),
            names=(*start.names, *names),
        )


def _extreme(entity: Entity, which: Callable[..., str]) -> str | None:
    lengths = entity.borders
    if not lengths:
        return None
    name = which(lengths, key=lambda n: lengths[n])
    return name if list(lengths.values()).count(lengths[name]) == 1 else None


def _ways(world: World, kind: str, rng: Any) -> Iterator[tuple[Found, int]]:
    """Yield described entities of one kind of question with the hops to them, shuffled."""
    countries, elements = list(world.clued("country")), list(world.clued("element"))
    rng.shuffle(countries)
    rng.shuffle(elements)
    chains: dict[str, tuple[list[Found], tuple[str, ...]]] = {
        "detail": (countries, ()),
        "neighbour": (countries, ("longest",)),
        "second_neighbour": (countries, ("longest", "shortest")),
        "partner": (countries, ("partner",)),
        "element_country": (elements, ("place",)),
        "element_neighbour": (elements, ("place", "longest")),
        "next_element": (elements, ("after",)),
    }
    if kind in chains:
        for found in chains[kind][0]:
            end: Found | None = found
            for relation in chains[kind][1]:
                end = end and world.follow(end, relation)
            if end is not None:
                yield end, len(chains[kind][1]) + 1
    elif kind == "largest_neighbour":
        for found in countries:
            for measure in MEASURES["country"]:
                end = world.largest_neighbour(found, measure)
                if end is not None:
                    yield end, 3
    else:
        yield from _compared(world, countries if kind == "larger" else elements, rng)


def _compared(world: World, found: list[Found], rng: Any) -> Iterator[tuple[Found, int]]:
    """Yield the larger ones of pairs of the same part."""
    by_part: dict[str, list[Found]] = {}
    for each in found:
        by_part.setdefault(each.entity.part, []).append(each)
    for part in sorted(by_part):
        pairs = list(combinations(by_part[part][:60], 2))
        rng.shuffle(pairs)
        for place, pair in enumerate(pairs[:400]):
            measures = list(MEASURES[pair[0].entity.kind])
            end = world.larger(pair, measures[place % len(measures)])
            if end is not None:
                yield end, 2


KINDS = (
    "detail", "neighbour", "second_neighbour", "partner", "larger", "largest_neighbour",
    "element_country", "element_neighbour", "next_element", "heavier",
)  # fmt: skip
"""Kinds of questions."""

COMPARED = ("larger", "heavier")
"""Pairs are many: half as many questions of these."""


def ask(
    entities: Sequence[Entity], limit: int, seed: int, fits: Callable[[Question], bool]
) -> list[Question]:
    """Return at most `limit` questions of each kind and part that fit, the same for a seed.

    A question is of a part only if all entities that its way passes through are, so that parts
    share no entity. Answers are unique: clues fit one entity, relations and comparisons have one
    result. The kinds are mixed.
    """
    world = World(entities)
    found: list[Question] = []
    for kind in KINDS:
        counts: dict[str, int] = {}
        for place, (end, hops) in enumerate(_ways(world, kind, stream(seed, "questions", kind))):
            parts = {world.by_name[name].part for name in end.names}
            part = parts.pop()
            most = limit // 2 if kind in COMPARED else limit
            if parts or counts.get(part, 0) >= most:
                continue
            make = partial(_question, kind, end, hops + 1, part)
            fitting = (q for q in map(make, _targets(end, place)) if q and fits(q))
            question = next(fitting, None)
            if question is not None:
                found.append(question)
                counts[part] = counts.get(part, 0) + 1
    return sorted(found, key=lambda q: seed_for(seed, "order", q.id))


def _targets(end: Found, place: int) -> list[str]:
    """Return what can be asked and stands on a new page, starting with another one each time."""
    kind = end.entity.kind
    seen = {step.page for step in end.steps}
    targets = [a for a in TARGETS[kind] if a in end.entity.facts]
    targets = [a for a in targets if page_id(end.entity, a) not in seen]
    first = place % max(1, len(targets))
    return targets[first:] + targets[:first]


def _question(kind: str, end: Found, hops: int, part: str, target: str) -> Question | None:
    """Return the question about one attribute, None if its own words give the answer."""
    entity = end.entity
    answer = str(entity.facts[target])
    text = TARGETS[entity.kind][target].format(x=end.asks)
    if answer.casefold() in text.casefold():
        return None
    return Question(
        id=f"{kind}-{seed_for(text):016x}",
        kind=kind, hops=hops, text=text, answers=_accepted(answer, target), answer_kind=target,
        steps=(*end.steps, _step(entity, target)),
        entities=tuple(sorted(set(end.names))), part=part,
    )  # fmt: skip


def _accepted(answer: str, target: str) -> tuple[str, ...]:
    """Return the answer and other forms that count: one dinar for dinars."""
    if target == "currency" and answer.endswith("s"):
        return answer, answer[:-1]
    return (answer,)
