"""The world of several processes, over torch.distributed: gloo on CPUs, nccl on GPUs."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from selfdistill_cli.core.errors import LostRank, RunError, SelfDistillError
from selfdistill_cli.training.heartbeat import Heartbeat, Watchdog
from selfdistill_cli.training.world import World, deal

T = TypeVar("T")
R = TypeVar("R")
Outcome = tuple[Any, Exception | None]

MARGIN_S = 60.0
"""The process group waits longer than the watchdog, which knows whom it waits for."""
BUCKET_NUMBERS = 2**22
"""Gradients are summed this many numbers at a time: 16 MB in float32."""


def join(device: str, timeout_s: float) -> ProcessWorld:
    """Join the job that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe.

    Waits until all ranks are there. `device` is cpu or cuda.
    """
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    if device == "cuda":
        torch.cuda.set_device(local_rank)
    backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s + MARGIN_S))
    return ProcessWorld(local_rank, timeout_s)


class ProcessWorld(World):
    """This process among `size`; every method is called by all ranks, in the same order."""

    def __init__(self, local_rank: int, timeout_s: float):
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self.local_rank = local_rank
        # Objects travel over gloo, whatever the gradients travel over.
        waits = timedelta(seconds=timeout_s + MARGIN_S)
        self.objects = dist.new_group(backend="gloo", timeout=waits)
        self.heartbeat = Heartbeat(self.rank)
        self.watchdog = Watchdog(self.size, timeout_s) if self.is_first else None

    def mine(
        self,
        items: Sequence[T],
        costs: Sequence[float] | None = None,
        units: Sequence[Hashable] | None = None,
    ) -> list[T]:
        """The items that fall to this rank, in order."""
        owners = deal([1.0] * len(items) if costs is None else costs, self.size, units)
        return [item for item, owner in zip(items, owners, strict=True) if owner == self.rank]

    def shared(
        self,
        items: Sequence[T],
        function: Callable[[list[T]], Iterable[R]],
        costs: Sequence[float] | None = None,
        units: Sequence[Hashable] | None = None,
        together: bool = False,
    ) -> list[R]:
        """Apply `function` to this rank's items; return all ranks' results, in item order."""
        own = self.mine(items, costs, units)
        called = bool(own) or together
        outcomes = self._outcomes(_outcome(lambda: list(function(own)) if called else []))
        _raise(outcomes)
        owners = deal([1.0] * len(items) if costs is None else costs, self.size, units)
        results = [iter(found) for found, _ in outcomes]
        return [next(results[owner]) for owner in owners]

    def from_first(self, function: Callable[[], T]) -> T:
        """Call `function` on rank 0 alone; its result, or what it raised, reaches every rank."""
        own: Outcome = _outcome(function) if self.is_first else (None, None)
        sent = [_portable(self.rank, own)]
        with self._collective():
            dist.broadcast_object_list(sent, src=0, group=self.objects)
        outcome = own if self.is_first else sent[0]
        _raise([outcome])
        return outcome[0]

    def gather(self, value: T) -> list[T]:
        """Every rank's value, by rank."""
        found: list[Any] = [None] * self.size
        with self._collective():
            dist.all_gather_object(found, value, group=self.objects)
        found[self.rank] = value  # the caller's own object, not a copy
        return found

    def sum(self, values: Sequence[float]) -> list[float]:
        """Sums over the ranks, added in the order of ranks."""
        return [float(sum(column)) for column in zip(*self.gather(list(values)), strict=True)]

    def agree(self, flag: bool) -> bool:
        """Whether the flag is set on any rank."""
        return any(self.gather(flag))

    def sum_gradients(self, parameters: Sequence[torch.Tensor]) -> None:
        """Sum in float32, in buckets. A parameter that no rank used keeps no gradient."""
        used = self.sum([float(p.grad is not None) for p in parameters])
        bucket: list[torch.Tensor] = []
        for parameter, count in zip(parameters, used, strict=True):
            if count > 0:
                bucket.append(parameter)
            if sum(p.numel() for p in bucket) >= BUCKET_NUMBERS:
                self._sum_bucket(bucket)
                bucket = []
        if bucket:
            self._sum_bucket(bucket)

    def _sum_bucket(self, parameters: Sequence[torch.Tensor]) -> None:
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = torch.cat([grad.float().flatten() for grad in grads])
        with self._collective():
            dist.all_reduce(flat)
        sizes = [parameter.numel() for parameter in parameters]
        for parameter, total in zip(parameters, flat.split(sizes), strict=True):
            parameter.grad = total.view_as(parameter).to(parameter.dtype)

    def note(self, phase: str, detail: str = "", waiting: bool = False) -> None:
        """Say what this rank is doing, for the others' error message if it never ends."""
        self.heartbeat.note(phase, detail, waiting)

    def begin_step(self, step: int) -> None:
        """Say which step follows."""
        self.heartbeat.step = step

    def log_to(self, folder: Path) -> None:
        """Let what the ranks other than 0 and their libraries print go to files in a folder."""
        if self.is_first:
            return
        folder.mkdir(exist_ok=True)
        sys.stdout.flush()
        sys.stderr.flush()
        with (folder / f"rank_{self.rank}.log").open("ab") as file:
            for number in (1, 2):
                os.dup2(file.fileno(), number)

    def part(self) -> None:
        """Wait for the others, who end their work now too; one that is gone is not waited for."""
        with contextlib.suppress(LostRank):
            self.gather(None)

    def close(self) -> None:
        """Leave. May be called twice."""
        if self.watchdog is not None:
            self.watchdog.stop()
        if dist.is_initialized():
            dist.destroy_process_group()

    def _outcomes(self, own: Outcome) -> list[Outcome]:
        found = self.gather(_portable(self.rank, own))
        found[self.rank] = own  # with its own traceback
        return found

    @contextlib.contextmanager
    def _collective(self) -> Any:
        """Count a meeting of all ranks; the end of another process is told as such."""
        self.heartbeat.waits(True)
        try:
            yield
        except RuntimeError as error:
            raise LostRank(
                f"rank {self.rank} lost the other ranks: {str(error).splitlines()[0]}"
            ) from error
        self.heartbeat.waits(False)


def _outcome(function: Callable[[], Any]) -> Outcome:
    """The result of a function, or what it raised."""
    try:
        return function(), None
    except LostRank:
        raise
    except Exception as error:
        return None, error


def _portable(rank: int, outcome: Outcome) -> Outcome:
    """An outcome that other processes can read; an error of ours that cannot travel is told."""
    value, error = outcome
    if error is None:
        return outcome
    try:
        if isinstance(error, SelfDistillError):
            pickle.loads(pickle.dumps(error))
            return outcome
    except Exception:  # an error class with arguments of its own
        pass
    return value, RunError(
        f"rank {rank}: {type(error).__name__}: {error} (its traceback is in ranks/rank_{rank}.log)"
    )


def _raise(outcomes: Sequence[Outcome]) -> None:
    """Raise the error of the first rank that has one."""
    for _, error in outcomes:
        if error is not None:
            error.known_to_all = True  # pyright: ignore[reportAttributeAccessIssue]
            raise error
