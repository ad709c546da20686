"""Suite of how the slow copy follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from selfdistill_cli.core.protocols import Sync
from selfdistill_cli.testing.companions import SmallCopy, readings
from selfdistill_cli.testing.expecting import (
    expect,
    expect_members,
    expect_metrics,
    expect_repeats,
    expect_resumes,
)

STEPS, UPDATES = 24, 3


def check_sync(make: Callable[[], Sync], *, keeps_copy: bool = True) -> None:
    """Raise AssertionError unless `make()` returns a new sync that keeps its contract.

    `keeps_copy`: what the settings class declares; without it the sync is given no copy.
    """
    part = make()
    name = type(part).__name__
    expect_members(part, "start", "after_update", "after_step", "state_dict", "load_state_dict")
    expect(getattr(part, "synced", None) is False, f"{name}.synced is not False at the start")

    def whole(sync: Sync) -> list[Any]:
        copies = _Copies(keeps_copy)
        return [copies.advance(sync, step) for step in range(1, STEPS + 1)]

    expect_repeats(make, whole, name)
    # The copy is saved beside the sync, so each resumed sync meets the copy of its own step.
    expect_resumes(make, _Copies(keeps_copy).advance, (0, 1, STEPS // 2, STEPS - 2), STEPS)


class _Copies:
    """One copy per sync, found again by the step at which a sync goes on."""

    def __init__(self, keeps_copy: bool):
        self.keeps_copy = keeps_copy
        self.saved: dict[int, SmallCopy] = {0: SmallCopy()}

    def advance(self, sync: Sync, step: int) -> Any:
        """One step with its updates; return what the copy and the sync became."""
        if step == 1:
            sync.start(0.2)
        copy = _twin(self.saved[step - 1])
        before = copy.full_copies
        for update in range(UPDATES):
            copy.train(step * UPDATES + update)
            if self.keeps_copy:
                sync.after_update(copy)
        metrics = sync.after_step(copy if self.keeps_copy else None, readings(step))
        name = type(sync).__name__
        expect_metrics(f"{name}.after_step", metrics)
        told = sync.synced or copy.full_copies == before
        expect(told, f"{name}: the copy was copied fully at step {step}, but synced is not True")
        synced, sync.synced = bool(sync.synced), False  # the method clears it after each step
        self.saved[step] = copy
        return [copy.slow.copy(), dict(metrics), synced]


def _twin(copy: SmallCopy) -> SmallCopy:
    other = SmallCopy()
    other.__dict__.update(copy.__dict__)  # its arrays are never changed in place
    return other
