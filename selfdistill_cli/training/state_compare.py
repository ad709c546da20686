"""Are two runs the same? Every byte of their checkpoints, every number that no clock decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from selfdistill_cli.tracking.metrics_file import deterministic_view, read
from selfdistill_cli.training.checkpoints import MANIFEST, STATE, Checkpoint, folder_name
from selfdistill_cli.training.files import checksum


def compare_runs(expected: Path, found: Path, step: int) -> dict[str, str | None]:
    """Compare the runs' checkpoints of a step and all metrics up to there.

    Returns, for each part (each entry of the training state, each model folder, `metrics`,
    `trajectories`), None if it is equal and otherwise where the first difference lies.
    """
    folders = [run / "checkpoints" / folder_name(step) for run in (expected, found)]
    parts = {**_state(folders, step), **_models(folders)}
    parts["metrics"] = _metrics(expected, found)
    parts["trajectories"] = _files(expected / "trajectories", found / "trajectories")
    return parts


def _state(folders: Sequence[Path], step: int) -> dict[str, str | None]:
    first, second = (Checkpoint(step=step, path=folder).state() for folder in folders)
    keys = sorted({*first, *second})
    return {key: first_difference(first.get(key), second.get(key), key) for key in keys}


def _models(folders: Sequence[Path]) -> dict[str, str | None]:
    names = sorted({p.name for folder in folders for p in folder.iterdir() if p.is_dir()})
    return {name: _files(*(folder / name for folder in folders)) for name in names}


def _files(expected: Path, found: Path) -> str | None:
    """The first file that only one folder has, or whose bytes differ."""
    listed = [
        {p.relative_to(folder) for p in folder.rglob("*") if p.is_file()}
        for folder in (expected, found)
    ]
    for name in sorted(listed[0] | listed[1]):
        if name.name in (MANIFEST, STATE):
            continue
        if name not in listed[0] or name not in listed[1]:
            return f"{name} exists in one of them only"
        if checksum(expected / name) != checksum(found / name):
            return f"{name} differs"
    return None


def _metrics(expected: Path, found: Path) -> str | None:
    lines = [
        {line["step"]: deterministic_view(line) for line in read(run / "metrics.jsonl")}
        for run in (expected, found)
    ]
    for step in sorted({*lines[0], *lines[1]}):
        different = first_difference(*(line.get(step) for line in lines), f"step {step}")
        if different:
            return different
    return None


def first_difference(expected: Any, found: Any, where: str) -> str | None:
    """Path of the first leaf of two nested values that is not equal to the last bit, or None."""
    return next(_differences(expected, found, where), None)


def _differences(expected: Any, found: Any, where: str) -> Iterator[str]:
    if isinstance(expected, torch.Tensor) and isinstance(found, torch.Tensor):
        yield from _tensors(expected, found, where)
    elif isinstance(expected, Mapping) and isinstance(found, Mapping):
        for key in [*expected, *(key for key in found if key not in expected)]:
            if key in expected and key in found:
                yield from _differences(expected[key], found[key], f"{where}.{key}")
            else:
                yield f"{where}.{key} exists in one of them only"
    elif isinstance(expected, list | tuple) and isinstance(found, list | tuple):
        if len(expected) != len(found):
            yield f"{where}: {len(expected)} and {len(found)} entries"
        for index, pair in enumerate(zip(expected, found, strict=False)):
            yield from _differences(*pair, f"{where}[{index}]")
    elif not _equal(expected, found):
        yield f"{where}: {expected!r:.40} and {found!r:.40}"


def _tensors(expected: torch.Tensor, found: torch.Tensor, where: str) -> Iterator[str]:
    if expected.dtype != found.dtype or expected.shape != found.shape:
        yield f"{where}: {tuple(expected.shape)} {expected.dtype} and another shape or type"
    elif not torch.equal(_bits(expected), _bits(found)):
        yield where


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor: nan equals nan, 0.0 differs from -0.0."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _equal(expected: Any, found: Any) -> bool:
    if isinstance(expected, float) and isinstance(found, float):
        return expected.hex() == found.hex()
    return type(expected) is type(found) and bool(expected == found)
