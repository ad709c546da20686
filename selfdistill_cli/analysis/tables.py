"""A comparison as tables for people and as files for programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from selfdistill_cli.analysis.comparison import (
    LAST_METRICS,
    LEVEL,
    PHASES,
    REPETITIONS,
    Comparison,
    MethodResult,
)
from selfdistill_cli.core.statistics import Interval

NONE = "-"


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of text under a heading."""

    title: str
    """What it shows."""
    header: tuple[str, ...]
    """Names of the columns."""
    rows: tuple[tuple[str, ...], ...]
    """Cells; the first one of a row is the method."""


def tables(comparison: Comparison) -> list[Table]:
    """Results, and how they came about."""
    return [_results(comparison), _process(comparison)]


def _results(comparison: Comparison) -> Table:
    header = ["method", "seeds", "start", "end", "gain", "IQM", "AUC"]
    if comparison.baseline:
        header += [f"minus {comparison.baseline}", "P(better)"]
    rows: list[tuple[str, ...]] = []
    for result in comparison.results:
        cells = [
            result.label,
            str(len(result.seeds)),
            f"{result.start.point:.3f}",
            _plain(result.end),
            _signed(result.gain),
            f"{result.interquartile_mean:.3f}",
            f"{result.area.point:.3f}" if result.area else NONE,
        ]
        rows.append((*cells, *_against(result)) if comparison.baseline else tuple(cells))
    percent = f"{LEVEL:.0%}"
    return Table(
        title=f"success, with {percent} intervals over seeds and tasks",
        header=tuple(header),
        rows=tuple(rows),
    )


def _against(result: MethodResult) -> tuple[str, str]:
    if result.against is None:
        return NONE, NONE
    chance = f"{result.against.probability_of_improvement:.3f}"
    return _signed(result.against.difference), chance


def _process(comparison: Comparison) -> Table:
    results = comparison.results
    metrics = [key for key in LAST_METRICS if any(key in r.last_metrics for r in results)]
    phases = [phase for phase in PHASES if any(phase in r.seconds for r in results)]
    rows = [
        (
            result.label,
            *(_number(result.last_metrics.get(key), ".4g") for key in metrics),
            f"{result.response_length:.1f}",
            *(_number(result.seconds.get(phase), ".3f") for phase in phases),
        )
        for result in results
    ]
    return Table(
        title="last divergences (nats per token), response length (tokens), seconds of a step",
        header=("method", *metrics, "length", *(f"{phase} s" for phase in phases)),
        rows=tuple(rows),
    )


def facts(comparison: Comparison) -> list[str]:
    """Lines that stand under the tables."""
    budget = "none (demonstrations)" if comparison.budget is None else comparison.budget
    return [
        f"panel: {', '.join(comparison.panel)}",
        f"episodes up to which AUC is taken: {budget}",
        *comparison.notes,
    ]


def as_text(table: Table) -> str:
    """Columns in line, for a screen or a file without colours."""
    grid = [table.header, *table.rows]
    widths = [max(len(row[i]) for row in grid) for i in range(len(table.header))]
    lines = ["  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)) for row in grid]
    return "\n".join([f"{table.title}:", *(line.rstrip() for line in lines)])


def as_markdown(comparison: Comparison) -> str:
    """The whole comparison as Markdown."""
    parts = ["# Comparison"]
    for table in tables(comparison):
        grid = [table.header, tuple("---" for _ in table.header), *table.rows]
        rows = ["| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in grid]
        parts.append("\n".join([f"{table.title[0].upper()}{table.title[1:]}:", "", *rows]))
    parts.append("\n".join(f"* {line}" for line in facts(comparison)))
    parts.append("\n".join(f"* {r.label}: {', '.join(r.runs)}" for r in comparison.results))
    return "\n\n".join(parts) + "\n"


def as_json(comparison: Comparison) -> str:
    """Every number, curves included."""
    content = {**asdict(comparison), "level": LEVEL, "repetitions": REPETITIONS}
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def as_csv(comparison: Comparison) -> str:
    """One line for each method, every number but the curves; empty where there is none."""
    rows = [_flat(result) for result in comparison.results]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _flat(result: MethodResult) -> dict[str, Any]:
    against = result.against
    return {
        "method": result.label,
        "runs": " ".join(result.runs),
        "seeds": " ".join(map(str, result.seeds)),
        **_columns("start", result.start),
        **_columns("end", result.end),
        **_columns("gain", result.gain),
        "iqm": result.interquartile_mean,
        **_columns("auc", result.area),
        **_columns("minus_baseline", against.difference if against else None),
        "probability_of_improvement": against.probability_of_improvement if against else None,
        "response_length": result.response_length,
        **_named("{}", LAST_METRICS, result.last_metrics),
        **_named("time/{}_s", PHASES, result.seconds),
    }


def _columns(name: str, interval: Interval | None) -> dict[str, float | None]:
    if interval is None:
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"))
    return {name: interval.point, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _named(
    pattern: str, names: Sequence[str], values: Mapping[str, float]
) -> dict[str, float | None]:
    return {pattern.format(name): values.get(name) for name in names}


def _plain(interval: Interval) -> str:
    return f"{interval.point:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def _signed(interval: Interval) -> str:
    return f"{interval.point:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"


def _number(value: float | None, form: str) -> str:
    return NONE if value is None else format(value, form)
