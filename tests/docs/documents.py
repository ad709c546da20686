"""Read the documentation: tables, code blocks, commands, links, words in backticks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
METHOD_PAGES = [ROOT / "docs/methods.md", *sorted((ROOT / "docs/methods").glob("*.md"))]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *METHOD_PAGES[1:]]

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TICKED = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
TABLE = re.compile(r"^\|.*\|\n\|[-| ]+\|\n(?:\|.*\|\n)*", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of a page."""

    header: list[str]
    """Cells of the first line."""
    rows: list[list[str]]
    """Cells of the others."""


def tables(text: str) -> Iterator[Table]:
    """All tables outside code blocks."""
    for match in TABLE.finditer(BLOCK.sub("", text)):
        lines = match.group().splitlines()
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        yield Table(header=cells[0], rows=cells[2:])


def ticked(text: str) -> list[str]:
    """What stands in backticks."""
    return TICKED.findall(BLOCK.sub("", text))


def commands(text: str) -> list[str]:
    """Every `selfdistill SUBCOMMAND ...` of a page, in code blocks and in backticks."""
    lines = [line for _, block in BLOCK.findall(text) for line in block.splitlines()]
    found = [x.strip() for x in [*lines, *ticked(text)] if x.strip().startswith("selfdistill ")]
    return [x for x in found if len(x.split()) > 2 or x == "selfdistill train"]


def words(command: str) -> list[str]:
    """The arguments after `selfdistill`, without a trailing comment or a description.

    A column of text beside a command is set off by at least three spaces.
    """
    return shlex.split(re.split(r" {3,}", command)[0], comments=True)[1:]


def knobs(table: Table) -> tuple[list[str], list[tuple[str, Any]]] | None:
    """(overrides, [(key, default)]) of a table headed `knob (overrides prefix.)`, else None."""
    if not table.header[0].startswith("knob ("):
        return None
    *overrides, prefix = ticked(table.header[0])
    assert prefix.endswith("."), f"{table.header[0]}: the last word is a prefix with a dot"
    found: list[tuple[str, Any]] = []
    for row in table.rows:
        names = ticked(row[0])
        values = row[1].split(", ") if len(names) > 1 else [row[1]]
        assert len(names) == len(values), f"{row}: as many defaults as knobs"
        found += [(prefix + n, number(v)) for n, v in zip(names, values, strict=True)]
    return overrides, found


def number(text: str) -> Any:
    """A value as a YAML file of ours would give it; 3e-4 is a number too."""
    value = yaml.safe_load(text)
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def options(table: Table) -> tuple[str, dict[str, dict[str, Any]]] | None:
    """(group, {option: {key: value}}) of a table headed `group=`, else None.

    A key without a value has the value `...`.
    """
    heads = ticked(table.header[0])
    if len(heads) != 1 or not heads[0].endswith("="):
        return None
    out: dict[str, dict[str, Any]] = {}
    column = table.header.index("keys") if "keys" in table.header else None
    for row in table.rows:
        pairs = [word.partition("=") for word in ticked(row[column])] if column else []
        out[ticked(row[0])[0]] = {k: number(v) if equals else ... for k, equals, v in pairs}
    return heads[0].removesuffix("="), out


def lookup(container: Mapping[str, Any], key: str) -> Any:
    """The value of a dotted key; raises KeyError with the whole key."""
    node: Any = container
    for part in key.split("."):
        if not isinstance(node, Mapping) or part not in node:
            raise KeyError(key)
        node = node[part]
    return node


def broken_links(page: Path, text: str) -> list[str]:
    """Relative links to files or headings that do not exist."""
    return [link for link in LINK.findall(text) if "://" not in link and not _exists(page, link)]


def _exists(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return False
    return not anchor or anchor in anchors(target.read_text(encoding="utf-8"))


def anchors(text: str) -> Sequence[str]:
    """How GitHub names the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", text), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", h).strip().lower().replace(" ", "-") for h in headings]
