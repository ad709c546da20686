"""Who writes checkpoints: this thread at once, or another one while the next steps train."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from selfdistill_cli.training.checkpoints import Checkpoints

Tensors = Mapping[str, torch.Tensor]


class Writer:
    """Saves through `checkpoints`; `fill(folder, tensors)` writes a model folder.

    In the background a save costs the caller a copy of the tensors to host memory. There is one
    write at a time: the next save waits for it, and so do `steps` and `wait`. What went wrong in
    it is raised by the first of `save`, `check`, `wait` and `steps` that is called afterwards. A
    process that is killed takes the thread along: nothing goes on writing beside its successor.
    """

    def __init__(
        self, checkpoints: Checkpoints, fill: Callable[[Path, Tensors], None], background: bool
    ):
        self.checkpoints = checkpoints
        self.fill = fill
        self.background = background
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def save(
        self, step: int, folders: Mapping[str, Tensors], state: dict[str, Any], best_step: int
    ) -> None:
        """Write a checkpoint, or begin to; `folders` are the tensors of each model folder.

        Raises RunError if it, or the one before, could not be written.
        """
        self.wait()
        if not self.background:
            self._write(step, folders, state, best_step)
            return
        folders, state = on_host((folders, state))
        # No daemon: a process that ends by itself waits for it.
        self._thread = threading.Thread(
            target=self._attempt, args=(step, folders, state, best_step), name=f"save_{step}"
        )
        self._thread.start()

    def _write(
        self, step: int, folders: Mapping[str, Tensors], state: dict[str, Any], best_step: int
    ) -> None:
        saves = {name: partial(self.fill, tensors=tensors) for name, tensors in folders.items()}
        self.checkpoints.save(step, saves, state, best_step)

    def _attempt(self, *what: Any) -> None:
        try:
            self._write(*what)
        except BaseException as error:  # whatever it is, the caller's thread must hear of it
            self._failure = error

    def check(self) -> None:
        """Raise what went wrong in a write that has ended; wait for nothing."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def wait(self) -> None:
        """Wait until nothing is being written; raise what went wrong."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()

    def steps(self) -> list[int]:
        """Steps that have a checkpoint, once nothing is being written."""
        self.wait()
        return self.checkpoints.steps()

    def end(self, announce: Callable[[str], None]) -> None:
        """Wait where another error is on its way already; what went wrong here is announced."""
        try:
            self.wait()
        except Exception as error:
            announce(f"the checkpoint that was being written is lost: {error}")


def on_host(value: Any, known: dict[Any, torch.Tensor] | None = None) -> Any:
    """A copy in host memory of nested containers; tensors that were one tensor still are."""
    known = {} if known is None else known
    if isinstance(value, torch.Tensor):
        key = (
            value.device, value.untyped_storage().data_ptr(), value.storage_offset(),
            value.dtype, value.shape, value.stride(),
        )  # fmt: skip
        if key not in known:
            known[key] = value.detach().to("cpu", copy=True)
        return known[key]
    if isinstance(value, Mapping):
        kind = OrderedDict if isinstance(value, OrderedDict) else dict
        return kind((name, on_host(item, known)) for name, item in value.items())
    if isinstance(value, list | tuple):
        return type(value)(on_host(item, known) for item in value)
    return value
