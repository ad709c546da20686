"""Pages written from facts: each fact is one sentence of one section's page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from selfdistill_cli.envs.search.facts import Entity


@dataclass(frozen=True, kw_only=True)
class Page:
    """One document of a corpus."""

    id: str
    """Unique in the corpus."""
    title: str
    """For people and for search."""
    text: str
    """All of it."""

    @property
    def subject(self) -> str:
        """What the page is about: the title up to a colon."""
        return self.title.split(":")[0].strip()


Sentence = Callable[[str, Mapping[str, Any]], str]


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _number(value: float) -> str:
    return f"{value:,}"


SENTENCES: dict[str, dict[str, dict[str, Sentence]]] = {
    "country": {
        "land": {
            "highest": lambda n, f: (
                f"The highest point of {n} is {f['highest']} ({_number(f['highest_m'])} m)."
            ),
            "mean_elevation": lambda n, f: (
                f"The mean elevation of {n} is {_number(f['mean_elevation'])} m."
            ),
            "area": lambda n, f: f"The area of {n} is {_number(f['area'])} sq km.",
        },
        "state": {
            "capital": lambda n, f: f"The capital of {n} is {f['capital']}.",
            "anthem": lambda n, f: f'The national anthem of {n} is "{f["anthem"]}".',
        },
        "people": {
            "population": lambda n, f: f"The population of {n} is {_number(f['population'])}.",
        },
        "money": {
            "currency": lambda n, f: f"The currency of {n} is {f['currency']}.",
            "partner": lambda n, f: (
                f"{n} exports most to {f['partner']} ({f['partner_share']:g}% of exports)."
            ),
        },
        "travel": {
            "prefix": lambda n, f: f"Aircraft of {n} carry the registration prefix {f['prefix']}.",
            "code": lambda n, f: f"The internet country code of {n} is {f['code']}.",
        },
    },
    "element": {
        "matter": {
            "number": lambda n, f: f"{n} has the atomic number {f['number']}.",
            "symbol": lambda n, f: f"The chemical symbol of {n} is {f['symbol']}.",
            "density": lambda n, f: f"The density of {n} is {f['density']:g} g/cm3.",
            "weight": lambda n, f: f"The atomic weight of {n} is {f['weight']:g}.",
            "after": lambda n, f: f"In the periodic table {n} is followed by {f['after']}.",
        },
        "discovery": {
            "discoverer": lambda n, f: f"{n} was discovered by {f['discoverer']}.",
            "year": lambda n, f: f"{n} was discovered in the year {f['year']}.",
            "place": lambda n, f: f"{n} was discovered in {f['place']}.",
        },
    },
}
"""By kind of entity, section and attribute."""

SECTION = {
    (kind, attribute): section
    for kind, sections in SENTENCES.items()
    for section, sentences in sections.items()
    for attribute in sentences
} | {("country", "borders"): "land"}
"""Where an attribute stands."""


def sentence(entity: Entity, attribute: str) -> str:
    """Return the sentence that says a fact."""
    if attribute == "borders":
        lengths = sorted(entity.borders.items())
        return f"{entity.name} borders {_listed(f'{name} ({km:,} km)' for name, km in lengths)}."
    section = SECTION[entity.kind, attribute]
    return SENTENCES[entity.kind][section][attribute](entity.name, entity.facts)


def page_id(entity: Entity, attribute: str) -> str:
    """Return the id of the page that says a fact."""
    return f"{_slug(entity.name)}/{SECTION[entity.kind, attribute]}"


def _slug(name: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split())


def pages_of(entity: Entity) -> Iterator[Page]:
    """Yield the pages of an entity, one a section that says something."""
    for section, sentences in SENTENCES[entity.kind].items():
        said = [sentence(entity, a) for a in sentences if a in entity.facts]
        if section == "land":
            said += [sentence(entity, "borders")] if entity.borders else []
            said += [f"Location: {entity.facts['location']}."] if "location" in entity.facts else []
        notes = entity.notes.get(section, {})
        said += [f"{title}: {text}." for title, text in notes.items()]
        if said:
            yield Page(
                id=f"{_slug(entity.name)}/{section}",
                title=f"{entity.name}: {section}",
                text=" ".join(said),
            )
