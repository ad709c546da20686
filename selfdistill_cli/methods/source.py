"""Sources: where do the samples of a step come from? All are functions of the step alone."""

from __future__ import annotations

from collections.abc import Sequence

from selfdistill_cli.core.hints import HintKind
from selfdistill_cli.core.protocols import Workshop
from selfdistill_cli.core.seeds import stream
from selfdistill_cli.core.types import Group, Task
from selfdistill_cli.methods.settings import DatasetSettings, PlaySettings
from selfdistill_cli.methods.stateless import Stateless


def in_epochs(tasks: Sequence[Task], seed: int, name: str, start: int, count: int) -> list[Task]:
    """Tasks number `start` to `start + count` of endless epochs, each in its own random order."""
    out: list[Task] = []
    for position in range(start, start + count):
        epoch, index = divmod(position, len(tasks))
        order = stream(seed, "order", name, epoch).permutation(len(tasks))
        out.append(tasks[int(order[index])])
    return out


class Play(Stateless):
    """Episodes played by the student on the next tasks of the split."""

    def __init__(self, settings: PlaySettings):
        self.settings = settings

    def groups(self, workshop: Workshop, step: int) -> list[Group]:
        """Return `tasks_per_step` groups of `group_size` scored episodes."""
        count = workshop.tasks_per_step
        tasks = workshop.tasks(self.settings.split)
        chosen = in_epochs(tasks, workshop.seed, "play", (step - 1) * count, count)
        return workshop.play(chosen, step, "rollout")


class Dataset(Stateless):
    """Demonstrations: reference answers, fixed shares of them under a hinted prompt."""

    def __init__(self, settings: DatasetSettings):
        self.settings = settings

    def groups(self, workshop: Workshop, step: int) -> list[Group]:
        """Return `tasks_per_step` demonstrations as groups of one sample."""
        s, total = self.settings, workshop.tasks_per_step
        counts: dict[HintKind, int] = {k: round(total * share) for k, share in s.hints.items()}
        plain = max(0, total - sum(counts.values()))
        groups = self._demonstrate(workshop, step, s.split, plain, None)
        for kind, count in counts.items():
            groups += self._demonstrate(workshop, step, s.hint_split, count, kind)
        return groups

    def _demonstrate(
        self, workshop: Workshop, step: int, split: str, count: int, hint: HintKind | None
    ) -> list[Group]:
        if count == 0:
            return []
        tasks = workshop.tasks(split)
        chosen = in_epochs(tasks, workshop.seed, hint or "plain", (step - 1) * count, count)
        return workshop.demonstrations(chosen, step, hint)
