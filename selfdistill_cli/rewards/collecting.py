"""One checked value per trajectory, whatever a component or a reward of a user does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from selfdistill_cli.core.errors import SelfDistillError
from selfdistill_cli.core.types import Trajectory
from selfdistill_cli.rewards.errors import ErrorBook, ErrorPolicy, Refused, refusal

T = TypeVar("T")
Undo = Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Asked(Generic[T]):
    """Who is asked for values and how the answers are read."""

    name: str
    """The component's name, or `reward` for a whole reward."""
    many: Callable[[Sequence[Trajectory]], Any]
    """Gives one raw value per trajectory."""
    batched: bool
    """Whether `many` takes several trajectories at once."""
    read: Callable[[Any], T]
    """A raw value as it is used; raises Refused."""
    masked: Callable[[Trajectory], T]
    """What stands for a value that there is none of."""
    zero: Callable[[Trajectory], T]
    """What stands for a value with on_error=zero."""
    policy: ErrorPolicy
    """What happens after a failure."""
    remember: Callable[[], Undo]
    """Notes the memory of what is asked; the function it gives puts that back."""


def collect(asked: Asked[T], trajectories: Sequence[Trajectory], book: ErrorBook) -> list[T]:
    """Ask for all values, in order; failures are noted in the book and stood in for.

    A batch that raises, or has a wrong length, is asked again one by one, so that a sample that
    cannot be scored costs its own value and no other.
    """
    if asked.batched and len(trajectories) > 1:
        found = _batch(asked, trajectories, book)
    else:
        found = [_single(asked, trajectory) for trajectory in trajectories]
    pairs = zip(trajectories, found, strict=True)
    return [_settle(asked, trajectory, value, book) for trajectory, value in pairs]


def _batch(
    asked: Asked[T], trajectories: Sequence[Trajectory], book: ErrorBook
) -> list[T | Refused]:
    undo = asked.remember()
    try:
        raw = _call(asked, trajectories)
    except Refused as failed:
        undo()
        singles = [_single(asked, trajectory) for trajectory in trajectories]
        if failed.kind == "wrong_length" or not any(isinstance(s, Refused) for s in singles):
            book.note(asked.name, asked.policy, failed, None)
        return singles
    return [_read(asked, value) for value in raw]


def _single(asked: Asked[T], trajectory: Trajectory) -> T | Refused:
    undo = asked.remember()
    try:
        return asked.read(_call(asked, [trajectory])[0])
    except Refused as failed:
        undo()
        return failed


def _call(asked: Asked[T], trajectories: Sequence[Trajectory]) -> list[Any]:
    """Raw values, as many as trajectories; raises Refused. Errors of ours go through."""
    try:
        raw = asked.many(trajectories)
        values = list(raw)
    except SelfDistillError:
        raise
    except Exception as error:  # whatever a user's reward raises costs its own samples
        raise refusal(error) from error
    if len(values) != len(trajectories):
        found = f"{len(values)} values for {len(trajectories)} trajectories"
        raise Refused("wrong_length", found)
    return values


def _read(asked: Asked[T], raw: Any) -> T | Refused:
    try:
        return asked.read(raw)
    except Refused as failed:
        return failed


def _settle(asked: Asked[T], trajectory: Trajectory, value: T | Refused, book: ErrorBook) -> T:
    if not isinstance(value, Refused):
        return value
    book.note(asked.name, asked.policy, value, trajectory)
    if asked.policy.on_error == "zero":
        return asked.zero(trajectory)
    for _ in range(asked.policy.retries if asked.policy.on_error == "retry" else 0):
        again = _single(asked, trajectory)
        if not isinstance(again, Refused):
            return again
    return asked.masked(trajectory)
