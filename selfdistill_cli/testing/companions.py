"""What a source and a sync meet in a run, small: a workshop that plays, a copy of weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from selfdistill_cli.core.hints import HintKind
from selfdistill_cli.core.protocols import Readings
from selfdistill_cli.core.seeds import seed_for, stream
from selfdistill_cli.core.types import Group, Task
from selfdistill_cli.testing.material import make_demonstrations, make_group, make_task


@dataclass(kw_only=True)
class SmallWorkshop:
    """Plays and demonstrates without a model; rewards are keyed like a run's random streams."""

    seed: int = 7
    """The run's seed."""
    group_size: int = 4
    """Episodes per task."""
    tasks_per_step: int = 6
    """Tasks in one step."""
    num_tasks: int = 5
    """Tasks of every split: fewer than a step takes, so that epochs end within a step."""

    def tasks(self, split: str) -> Sequence[Task]:
        """The split's tasks, each with a reference answer."""
        return tuple(make_task(f"{split} {i}") for i in range(self.num_tasks))

    def play(self, tasks: Sequence[Task], step: int, purpose: str) -> list[Group]:
        """Groups with rewards 0, 0.5, 1 or rejected, some of them flat."""
        return [self._played(task, step, purpose) for task in tasks]

    def _played(self, task: Task, step: int, purpose: str) -> Group:
        key = (self.seed, purpose, step, task.id)
        drawn = stream(*key, "rewards").choice(4, size=self.group_size, p=[0.45, 0.2, 0.25, 0.1])
        rewards = [(0.0, 0.5, 1.0, None)[int(i)] for i in drawn]
        group = make_group(task.id, rewards, seed_for(*key) % 2**31)
        trajectories = [replace(t, task=task, policy_version=step - 1) for t in group.trajectories]
        return replace(group, task=task, trajectories=tuple(trajectories))

    def demonstrations(
        self, tasks: Sequence[Task], step: int, hint: HintKind | None
    ) -> list[Group]:
        """One sample per task, keyed by task, step and hint."""
        found: list[Group] = []
        for task in tasks:
            seed = seed_for(self.seed, "demonstration", step, task.id, hint or "") % 2**31
            found.append(replace(make_demonstrations(1, seed)[0], task=task))
        return found


class SmallCopy:
    """Implements `core.protocols.SlowCopy` on one vector; the student moves when told to."""

    def __init__(self) -> None:
        self.student = np.zeros(4)
        self.slow = np.zeros(4)
        self.good: np.ndarray | None = None
        self.full_copies = 0

    def train(self, update: int) -> None:
        """The student's update number `update`."""
        self.student = self.student + stream("student", update).normal(size=4)

    def follow(self, decay: float) -> None:
        """slow = decay * slow + (1 - decay) * student."""
        self.slow = decay * self.slow + (1.0 - decay) * self.student

    def copy_student(self) -> None:
        """slow = student."""
        self.slow = self.student.copy()
        self.full_copies += 1

    def distance(self) -> float:
        """Euclidean distance to the student."""
        return float(np.linalg.norm(self.slow - self.student))

    def keep_good(self) -> None:
        """Remember the weights as they are now."""
        self.good = self.slow.copy()

    def restore_good(self) -> bool:
        """Go back to the remembered weights; False if there are none."""
        if self.good is None:
            return False
        self.slow = self.good.copy()
        return True


def readings(step: int, terms: Sequence[str] = ("term",)) -> Readings:
    """What step `step` of a made-up run measured: rising, noisy, then flat; some things absent."""
    rng = stream("readings", step)
    rise = min(1.0, step / 12)
    return Readings(
        step=step,
        losses={name: float(0.05 + 0.3 * rng.random()) for name in terms},
        reward=None if step % 9 == 0 else 0.6 * rise + 0.02 * float(rng.random()),
        teacher_kl=None if step % 7 == 0 else float(0.4 * rng.random()),
        success=0.5 * rise + 0.3 * float(rng.random()) if step % 2 == 0 else None,
    )
