"""Which runs are seeds of the same thing, what that thing is called, and is the contest fair?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from selfdistill_cli.analysis.run_record import RunRecord
from selfdistill_cli.core.errors import UserError

NO_INFLUENCE = (
    "seed", "run.name", "run.root", "run.num_threads", "run.trajectories_every",
    "run.trajectories_limit", "checkpoint", "resume", "tracker", "launcher", "guards",
    "env.sandbox.workers",
)  # fmt: skip
"""Keys that change no result, and the seed; a key stands for all below it."""

MEASURING = ("eval",)
"""Keys of the measurement: they make no other method of it."""

OF_THE_METHOD = ("method", "teacher")
"""Keys that are what is compared; all others are the protocol."""

BUDGET = "method.group_size"
"""A key of the method that also sets how many episodes a step plays."""

TARGET = "_target_"
ABSENT = "absent"


@dataclass(frozen=True, kw_only=True)
class RunGroup:
    """Runs that differ in their seeds only."""

    label: str
    """The method, and what tells it from other groups of the same method."""
    method: str
    """Name of the method."""
    runs: tuple[RunRecord, ...]
    """S runs, in order of their seeds."""


def identity(run: RunRecord) -> dict[str, str]:
    """Every setting that may change a result, by dotted key."""
    return {
        key: _text(value)
        for key, value in _leaves(run.config)
        if not _under(key, (*NO_INFLUENCE, *MEASURING))
    }


def group_runs(runs: Sequence[RunRecord]) -> list[RunGroup]:
    """Groups in order of their first run."""
    by_identity: dict[tuple[tuple[str, str], ...], list[RunRecord]] = {}
    for run in runs:
        by_identity.setdefault(tuple(sorted(identity(run).items())), []).append(run)
    groups = list(by_identity.values())
    return [
        RunGroup(
            label=_label(members[0], [g[0] for g in groups if g[0].method == members[0].method]),
            method=members[0].method,
            runs=tuple(sorted(members, key=lambda run: run.seed)),
        )
        for members in groups
    ]


def check_panels(runs: Sequence[RunRecord]) -> None:
    """Raise UserError unless all runs were measured on the same tasks in the same way."""
    panels: dict[tuple[str, ...], list[str]] = {}
    for run in runs:
        panels.setdefault(run.panel, []).append(run.name)
    if len(panels) > 1:
        rows = [f"{', '.join(panel)}: {', '.join(names)}" for panel, names in panels.items()]
        raise UserError(
            "the runs were measured on different panels; expected one (the same eval.panel, "
            "eval.num_tasks, eval.samples_per_task, eval.temperature, eval.hints and tasks). "
            "Compare them apart, or train them again:\n" + "\n".join(rows)
        )


def protocol_differences(groups: Sequence[RunGroup]) -> list[str]:
    """A line for each key outside the method that is not the same in all runs."""
    tables = [
        (group.label, {k: _text(v) for k, v in _leaves(run.config) if _in_protocol(k)})
        for group in groups
        for run in group.runs
    ]
    lines: list[str] = []
    for key in _differing([table for _, table in tables]):
        holders: dict[str, list[str]] = {}
        for label, table in tables:
            names = holders.setdefault(table.get(key, ABSENT), [])
            if label not in names:
                names.append(label)
        shown = ", ".join(f"{value} ({', '.join(names)})" for value, names in holders.items())
        lines.append(f"protocol differs: {key} = {shown}")
    return lines


def _in_protocol(key: str) -> bool:
    return key == BUDGET or not _under(key, (*NO_INFLUENCE, *OF_THE_METHOD))


def _label(run: RunRecord, rivals: Sequence[RunRecord]) -> str:
    tables = [identity(rival) for rival in rivals]
    mine, differing = identity(run), _differing(tables)
    names = _shortened(differing)
    words = [f"{names[key]}={mine.get(key, ABSENT)}" for key in differing]
    return " ".join([run.method, *words])


def _differing(tables: Sequence[Mapping[str, str]]) -> list[str]:
    """Keys with more than one value; what stands below a part that was exchanged is left out."""
    keys = dict.fromkeys(key for table in tables for key in table)
    found = [key for key in keys if len({table.get(key, ABSENT) for table in tables}) > 1]
    return [key for key in found if not _under(key, [other for other in found if other != key])]


def _shortened(keys: Sequence[str]) -> dict[str, str]:
    """The shortest ends of dotted keys that tell them apart."""
    short: dict[str, str] = {}
    for key in keys:
        words = key.split(".")
        ends = (".".join(words[-n:]) for n in range(1, len(words) + 1))
        short[key] = next(
            (e for e in ends if sum(f".{k}".endswith(f".{e}") for k in keys) == 1), key
        )
    return short


def _leaves(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values; a part stands under its own key, with the name of its class."""
    for name, value in node.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            if TARGET in value:
                yield key, value[TARGET]
            yield from _leaves({k: v for k, v in value.items() if k != TARGET}, f"{key}.")
        else:
            yield key, value


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    text = "none" if value is None else str(value)
    is_class = text.startswith("selfdistill_cli.") and text.endswith("Settings")
    return text.rpartition(".")[2].removesuffix("Settings") if is_class else text


def _under(key: str, places: Sequence[str]) -> bool:
    return any(key == place or key.startswith(f"{place}.") for place in places)
