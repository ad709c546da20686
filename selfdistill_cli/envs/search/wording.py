"""How attributes are asked about: clues that lead to an entity, relations, targets, skills."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Clue:
    """An attribute by which an entity is found."""

    asks: str
    """What a question says; `{v}` is the value."""
    query: str
    """What is searched, as it stands in the question."""


CLUES: dict[str, dict[str, Clue]] = {
    "country": {
        "highest": Clue(asks="the country whose highest point is {v}", query="{v}"),
        "anthem": Clue(asks='the country whose national anthem is "{v}"', query="{v}"),
        "prefix": Clue(
            asks="the country whose aircraft carry the registration prefix {v}",
            query="registration prefix {v}",
        ),
        "currency": Clue(asks="the country whose currency is {v}", query="{v}"),
        "capital": Clue(asks="the country whose capital is {v}", query="{v}"),
    },
    "element": {
        "number": Clue(asks="the element with the atomic number {v}", query="atomic number {v}"),
        "symbol": Clue(asks="the element with the symbol {v}", query="symbol {v}"),
        "discoverer": Clue(asks="the element that {v} discovered", query="{v}"),
    },
}

TARGETS: dict[str, dict[str, str]] = {
    "country": {
        "capital": "What is the capital of {x}?",
        "currency": "What is the currency of {x}?",
        "highest": "What is the highest point of {x}?",
        "anthem": "What is the title of the national anthem of {x}?",
        "prefix": "Which registration prefix do the aircraft of {x} carry?",
        "code": "What is the internet country code of {x}?",
    },
    "element": {
        "discoverer": "Who discovered {x}?",
        "year": "In which year was {x} discovered?",
    },
}

MEASURES: dict[str, dict[str, str]] = {
    "country": {"area": "larger area", "population": "larger population"},
    "element": {"density": "higher density", "weight": "higher atomic weight"},
}
"""Numbers that are compared."""

LONGEST = "the neighbour with the longest border to {x}"
SHORTEST = "the neighbour with the shortest border to {x}"
PARTNER = "the main export market of {x}"
PLACE = "the country where {x} was discovered"
AFTER = "the element right after {x}"

SKILLS: dict[str, str] = {
    "detail": "Search the clue, open the page that names the entity, then search its name and "
    "open the page about what is asked.",
    "neighbour": "Find the country by the clue, read its borders on the land page, then search "
    "the neighbour with the longest one.",
    "second_neighbour": "Read borders on the land page twice: first the longest one, then the "
    "shortest one of that neighbour; then search the last country.",
    "partner": "Find the country by the clue, read its exports on the money page, then search "
    "the country that buys most.",
    "larger": "Find both by their clues, open the pages with the number to compare, then search "
    "the one with more.",
    "largest_neighbour": "Open the land page of the country, then search each neighbour and "
    "compare, then search the largest one.",
    "element_country": "Find the element by the clue, read the country on its discovery page, "
    "then search the country.",
    "element_neighbour": "Find the element, the country of its discovery, that country's longest "
    "border on the land page, then search the neighbour.",
    "next_element": "Find the element by the clue, read what follows it on the matter page, then "
    "search that element and open its discovery page.",
    "heavier": "Find both elements by their clues, compare the number on their matter pages, "
    "then open the discovery page of the one with more.",
}
"""The way to an answer, by kind of question."""

GENERAL_SKILLS = (
    "Search a few exact words of the clue, not the whole question.",
    "Open a page before you trust it; answer only with what a page says.",
    "When a page names the next thing, search its name.",
)
"""What helps with every question."""
