"""Where each value of a composed configuration came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.types import Override

from selfdistill_cli.config import catalog
from selfdistill_cli.config.naming import leaves

TYPED = "command line"


def origins(
    container: Mapping[str, Any],
    files: Sequence[tuple[str, str]],
    typed: Sequence[Override],
    folders: Sequence[Path],
) -> dict[str, str]:
    """Return the origin of each leaf, by dotted key.

    `files` are the composed files in order, as (group/option, place in the configuration);
    `typed` are the overrides of values. The last one that set a leaf, or something around it, is
    its origin.
    """
    said: dict[str, str] = {}
    for config_path, package in files:
        path = catalog.find_file(folders, config_path)
        if path is None:
            continue
        for key, _ in leaves(_content(path)):
            said[_join(package, key)] = _label(path, folders)
    for override in typed:
        value = override.value()
        for key, _ in leaves(value if isinstance(value, Mapping) else None):
            said[_join(override.key_or_group, key)] = TYPED
    return {key: _lookup(said, key) for key, _ in leaves(container)}


def _content(path: Path) -> dict[str, Any]:
    content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    return {key: value for key, value in content.items() if key not in ("defaults", "hydra")}


def _label(path: Path, folders: Sequence[Path]) -> str:
    shipped = folders[0]
    if path.is_relative_to(shipped):
        return f"conf/{path.relative_to(shipped).as_posix()}"
    return str(path)


def _lookup(said: Mapping[str, str], key: str) -> str:
    while key not in said and "." in key:
        key = key.rpartition(".")[0]
    return said.get(key, "")


def _join(package: str, key: str) -> str:
    return ".".join(part for part in (package, key) if part)


def with_files(problems: str, origin: Mapping[str, str]) -> str:
    """Add to each `key: problem` line the file in which the key stands."""
    lines: list[str] = []
    for line in problems.splitlines():
        key = line.partition(": ")[0].partition("[")[0]
        sources = [s for leaf, s in origin.items() if leaf == key or leaf.startswith(f"{key}.")]
        known = sources and sources[0] not in ("", TYPED)
        lines.append(f"{line} [{sources[0]}]" if known else line)
    return "\n".join(lines)


def render(container: Mapping[str, Any], origin: Mapping[str, str]) -> str:
    """Return the configuration as YAML, one value a line, with its origin as a comment."""
    rows = list(_rows(container, origin, "", 0))
    width = min(60, max(len(line) for line, _ in rows))
    return "\n".join(f"{line:<{width}}  # {source}" if source else line for line, source in rows)


def _rows(
    node: Mapping[str, Any], origin: Mapping[str, str], prefix: str, depth: int
) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in sorted(node.items(), key=_simple_first):
        key = f"{prefix}.{name}" if prefix else str(name)
        indent = "  " * depth
        if isinstance(value, Mapping) and value:
            rows.append((f"{indent}{_inline(name)}:", ""))
            rows.extend(_rows(value, origin, key, depth + 1))
        else:
            rows.append((f"{indent}{_inline(name)}: {_inline(value)}", origin.get(key, "")))
    return rows


def _simple_first(item: tuple[str, Any]) -> tuple[bool, bool]:
    return (isinstance(item[1], Mapping), item[0] != "_target_")


def _inline(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=float("inf"), allow_unicode=True)
    return text.removesuffix("...\n").strip()
