"""Syncs: how does the slow copy follow the student?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from selfdistill_cli.core.protocols import Metrics, Readings, SlowCopy
from selfdistill_cli.losses.averaging import GateState, gate_update
from selfdistill_cli.methods.settings import (
    GatedSettings,
    NoSyncSettings,
    SlowCopySettings,
)
from selfdistill_cli.methods.stateless import Stateless


class NoSync(Stateless):
    """There is no slow copy."""

    synced = False

    def __init__(self, settings: NoSyncSettings):
        self.settings = settings

    def start(self, success: float | None) -> None:
        """Nothing follows."""

    def after_update(self, copy: SlowCopy) -> None:
        """Nothing follows."""

    def after_step(self, copy: SlowCopy | None, readings: Readings) -> Metrics:
        """Nothing follows."""
        return {}


class Following:
    """Counts units, pauses and rolls back; a subclass says how one unit moves the copy."""

    def __init__(self, settings: SlowCopySettings):
        self.settings: Any = settings
        self.count = 0
        self.paused = False
        self.synced = False
        self.best: float | None = None

    def after_update(self, copy: SlowCopy) -> None:
        """One optimizer update was made."""
        if self.settings.unit == "update":
            self._advance(copy)

    def after_step(self, copy: SlowCopy | None, readings: Readings) -> Metrics:
        """One step was made; decide whether the copy follows during the next one."""
        assert copy is not None, "a sync that keeps a copy is given one"
        if self.settings.unit == "step":
            self._advance(copy)
        self._evaluated(copy, readings)
        rolled_back = self._watch(copy, readings)
        metrics = {
            "teacher/distance": copy.distance(),
            "teacher/synced": float(self.synced),
            "teacher/paused": float(self.paused),
            "teacher/rolled_back": float(rolled_back),
        }
        return metrics

    def start(self, success: float | None) -> None:
        """The copy's success before the first step."""

    def _advance(self, copy: SlowCopy) -> None:
        if self.paused:
            return
        self.count += 1
        self._follow(copy)

    def _follow(self, copy: SlowCopy) -> None:
        raise NotImplementedError

    def _full_copy(self, copy: SlowCopy) -> None:
        copy.copy_student()
        self.synced = True

    def _evaluated(self, copy: SlowCopy, readings: Readings) -> None:
        """Remember the copy as it was at the best evaluation of the student."""
        if self.settings.rollback_kl is None or readings.success is None:
            return
        if self.best is None or readings.success >= self.best:
            self.best = readings.success
            copy.keep_good()

    def _watch(self, copy: SlowCopy, readings: Readings) -> bool:
        s, kl = self.settings, readings.teacher_kl
        self.paused = s.pause_kl is not None and kl is not None and kl > s.pause_kl
        if s.rollback_kl is None or kl is None or kl <= s.rollback_kl:
            return False
        rolled_back = copy.restore_good()
        self.synced = self.synced or rolled_back  # a controller's memory is of another copy
        return rolled_back

    def state_dict(self) -> dict[str, Any]:
        """Units counted, whether the copy is paused, the best success."""
        return {"count": self.count, "paused": self.paused, "best": self.best}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.count = int(state["count"])
        self.paused = bool(state["paused"])
        self.best = state["best"]


class Ema(Following):
    """Exponential moving average, with a full copy every so often if asked."""

    def _follow(self, copy: SlowCopy) -> None:
        s = self.settings
        copy.follow(s.decay)
        if s.full_sync_every > 0 and self.count % s.full_sync_every == 0:
            self._full_copy(copy)


class Hard(Following):
    """A full copy every `every` units."""

    def _follow(self, copy: SlowCopy) -> None:
        if self.count % self.settings.every == 0:
            self._full_copy(copy)


class Gated(Following):
    """A full copy when the student beats the copy on the validation panel."""

    def __init__(self, settings: GatedSettings):
        super().__init__(settings)
        self.gate: GateState | None = None

    def start(self, success: float | None) -> None:
        """The score that the student has to beat."""
        assert success is not None, "config.rules asks for evaluations"
        self.gate = GateState(teacher_score=success)

    def _follow(self, copy: SlowCopy) -> None:
        """Only an evaluation moves the copy."""

    def _evaluated(self, copy: SlowCopy, readings: Readings) -> None:
        super()._evaluated(copy, readings)
        if readings.success is None or self.paused:
            return
        assert self.gate is not None, "a run with this sync evaluates before its first step"
        s = self.settings
        self.gate, passed = gate_update(self.gate, readings.success, s.margin, s.patience)
        if passed:
            self._full_copy(copy)

    def state_dict(self) -> dict[str, Any]:
        """Also the copy's score and the evaluations in a row that beat it."""
        gate = None if self.gate is None else dict(self.gate.__dict__)
        return {**super().state_dict(), "gate": gate}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict(state)
        self.gate = None if state["gate"] is None else GateState(**state["gate"])
