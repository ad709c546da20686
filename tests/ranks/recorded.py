"""A source that gives the same groups to every run: only what learns from them is compared."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from selfdistill_cli.core.settings import Settings
from selfdistill_cli.core.types import Group


@dataclass(frozen=True, kw_only=True)
class RecordedSettings(Settings):
    """`method/source=recorded`."""

    implementation: ClassVar[str] = "recorded:Recorded"
    plays: ClassVar[bool] = True

    path: str
    """What `record` wrote."""
    dropped: int
    """Siblings of a step's last group that are left out."""


class Recorded:
    """Gives the groups of a file, step by step."""

    def __init__(self, settings: RecordedSettings):
        self.dropped = settings.dropped
        self.steps: list[list[Group]] = pickle.loads(Path(settings.path).read_bytes())

    def groups(self, workshop: Any, step: int) -> list[Group]:
        """The groups of a step."""
        *others, last = self.steps[step - 1]
        return [*others, _smaller(last, len(last.samples) - self.dropped)]

    def state_dict(self) -> dict[str, Any]:
        """Nothing is remembered."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Nothing is restored."""


def record(path: Path, steps: Sequence[Sequence[Group]]) -> None:
    """Write groups; hidden states belong to weights that will be gone and are left out."""
    bare = [[_bare(group, i) for group in groups] for i, groups in enumerate(steps)]
    path.write_bytes(pickle.dumps(bare))


def _smaller(group: Group, size: int) -> Group:
    """The first siblings of a group whose samples are one per trajectory."""
    kept = {k: getattr(group, k)[:size] for k in ("trajectories", "scores", "samples")}
    return replace(group, **kept)


def _bare(group: Group, version: int) -> Group:
    return replace(
        group,
        trajectories=tuple(replace(t, policy_version=version) for t in group.trajectories),
        samples=tuple(replace(s, hidden=None) for s in group.samples),
    )
