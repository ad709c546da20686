"""What every suite is made of: expectations with a message, untouched inputs, exact resumption."""

from __future__ import annotations

import copy
import dataclasses
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def expect(condition: bool, message: str) -> None:
    """Raise AssertionError with the message unless the condition holds."""
    if not condition:
        raise AssertionError(message)


def same(a: Any, b: Any) -> bool:
    """Whether two nested values are equal, bit for bit; nan equals nan, and types count."""
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return _same_tensors(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b) or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


def _same_tensors(a: Any, b: Any) -> bool:
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        return False
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return np.array_equal(
        a.detach().cpu().numpy(), b.detach().cpu().numpy(), equal_nan=a.is_floating_point()
    )


@contextmanager
def untouched(what: str, *inputs: Any) -> Iterator[None]:
    """Expect that the inputs are the same after the block as before."""
    before = copy.deepcopy(inputs)
    yield
    expect(
        same(before, inputs),
        f"{what} changed its input in place; make new objects (dataclasses.replace, array.copy())",
    )


def expect_members(part: Any, *names: str) -> None:
    """Expect that a part has every named attribute."""
    missing = [name for name in names if not hasattr(part, name)]
    expect(not missing, f"{type(part).__name__} has no {', '.join(missing)}")


def expect_metrics(what: str, metrics: Any) -> None:
    """Expect a mapping of names to finite numbers."""
    expect(isinstance(metrics, Mapping), f"{what}: expected a mapping of metrics, got {metrics!r}")
    for name, value in metrics.items():
        expect(isinstance(name, str), f"{what}: the metric name {name!r} is not a text")
        expect_number(f"{what}: the metric {name}", value)


def expect_number(what: str, value: Any) -> None:
    """Expect one finite number."""
    number = isinstance(value, int | float) and math.isfinite(value)
    expect(number, f"{what} is {value!r}; expected a finite number (int or float)")


def expect_row(what: str, row: Any, length: int, mask: np.ndarray | None = None) -> None:
    """Expect a finite float32 array [T], 0 where the mask is false."""
    is_array = isinstance(row, np.ndarray) and row.dtype == np.float32
    found = f"{type(row).__name__} {getattr(row, 'dtype', '')}".strip()
    expect(is_array, f"{what}: expected a float32 numpy array, got {found}")
    expect(row.shape == (length,), f"{what}: expected the shape ({length},), got {row.shape}")
    expect(bool(np.isfinite(row).all()), f"{what} has nan or infinite entries")
    if mask is not None:
        expect(bool((row[~mask] == 0).all()), f"{what} is not 0 at inactive positions")


def reloaded(state: Any, what: str) -> Any:
    """The state as a checkpoint gives it back; expects plain containers and tensors."""
    expect(isinstance(state, dict), f"{what}.state_dict() returned {state!r}, expected a dict")
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    try:
        return torch.load(buffer, weights_only=True)
    except Exception as error:
        raise AssertionError(
            f"{what}.state_dict() cannot be read with torch.load(weights_only=True): use numbers, "
            f"texts, lists, dicts and tensors only ({str(error).splitlines()[0]})"
        ) from error


def expect_resumes(
    make: Callable[[], Any], advance: Callable[[Any, int], Any], saves: Sequence[int], end: int
) -> None:
    """Expect that a part, saved after a step and loaded into a new one, goes on exactly.

    `advance(part, step)` does one step and returns what can be compared; `saves` are the steps
    after which a part is saved (0: before the first one).
    """
    straight = make()
    name = type(straight).__name__
    states, results = {0: reloaded(straight.state_dict(), name)}, []
    for step in range(1, end + 1):
        results.append(advance(straight, step))
        states[step] = reloaded(straight.state_dict(), name)
    for saved in saves:
        resumed = make()
        resumed.load_state_dict(states[saved])
        for step in range(saved + 1, end + 1):
            expect(
                same(advance(resumed, step), results[step - 1]),
                f"{name}: saved after step {saved} and loaded into a new one, step {step} is "
                "another; state_dict() must hold everything that later steps depend on",
            )


def expect_repeats(
    make: Callable[[], Any], use: Callable[[Any], Any], what: str, *inputs: Any
) -> Any:
    """Expect that two new parts give the same and leave the inputs alone; return what one gave.

    Numpy's and torch's global random streams are moved in between: nothing may depend on them.
    """
    with untouched(what, *inputs):
        first = use(make())
    np.random.seed(12345)
    torch.manual_seed(54321)
    second = use(make())
    expect(
        same(first, second),
        f"{what} gave two results for the same input; draw from core.seeds.stream(*key)",
    )
    return first
