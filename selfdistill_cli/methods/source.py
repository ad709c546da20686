"""Sources: where do the samples of a step come from?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from selfdistill_cli.core.hints import HintKind
from selfdistill_cli.core.protocols import Workshop
from selfdistill_cli.core.seeds import stream
from selfdistill_cli.core.types import Group, Task
from selfdistill_cli.methods.advantage import is_flat
from selfdistill_cli.methods.replay_buffer import ReplayBuffer
from selfdistill_cli.methods.settings import (
    DatasetSettings,
    MixedSettings,
    PlaySettings,
    ReplaySettings,
)
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
        """Return `tasks_per_step` groups of `group_size` scored episodes.

        With `max_rounds` above 1, flat groups are replaced by further tasks (DAPO's dynamic
        sampling, arXiv 2503.14476); they stay in the list without samples, to be counted.
        """
        count = workshop.tasks_per_step
        played = self.play(workshop, step, count)
        useful = sum(not is_flat(group) for group in played)
        for number in range(1, self.settings.max_rounds):
            if useful >= count:
                break
            more = self._further(workshop, step, number, count - useful)
            useful += sum(not is_flat(group) for group in more)
            played += more
        return _without_surplus(played, count) if self.settings.max_rounds > 1 else played

    def play(self, workshop: Workshop, step: int, count: int) -> list[Group]:
        """Play the step's tasks, `count` of them in every step."""
        tasks = workshop.tasks(self.settings.split)
        chosen = in_epochs(tasks, workshop.seed, "play", (step - 1) * count, count)
        return workshop.play(chosen, step, "rollout")

    def _further(self, workshop: Workshop, step: int, number: int, count: int) -> list[Group]:
        tasks = workshop.tasks(self.settings.split)
        start = ((step - 1) * (self.settings.max_rounds - 1) + number - 1) * workshop.tasks_per_step
        chosen = in_epochs(tasks, workshop.seed, "further", start, count)
        return workshop.play(chosen, step, f"rollout round {number}")


def _without_surplus(groups: Sequence[Group], count: int) -> list[Group]:
    """Keep the samples of `count` groups, those with reward differences first."""
    order = sorted(range(len(groups)), key=lambda i: (is_flat(groups[i]), i))
    kept = set(order[:count])
    return [g if i in kept else replace(g, samples=()) for i, g in enumerate(groups)]


class Mixed(Play):
    """Episodes and demonstrations in fixed shares (GKD's on-policy fraction, arXiv 2306.13649)."""

    settings: MixedSettings

    def groups(self, workshop: Workshop, step: int) -> list[Group]:
        """Return played groups, then demonstrations; together `tasks_per_step`."""
        total = workshop.tasks_per_step
        played = round(total * self.settings.on_policy)
        groups = self.play(workshop, step, played) if played else []
        count = total - played
        if count:
            tasks = workshop.tasks(self.settings.demonstrations)
            chosen = in_epochs(tasks, workshop.seed, "mixed", (step - 1) * count, count)
            groups += workshop.demonstrations(chosen, step, None)
        return groups


class Replay(Play):
    """Fresh episodes and remembered ones; the ratio is taken against the policy that sampled."""

    settings: ReplaySettings

    def __init__(self, settings: ReplaySettings):
        super().__init__(settings)
        self.buffer = ReplayBuffer(settings.capacity, settings.max_staleness)
        self.played = 0

    def groups(self, workshop: Workshop, step: int) -> list[Group]:
        """Return fresh groups, then replayed ones; together `tasks_per_step`.

        While the buffer holds too little, more tasks are played instead.
        """
        total = workshop.tasks_per_step
        self.buffer.drop_stale(step)
        wanted = min(round(total * self.settings.share), len(self.buffer.groups))
        old = self.buffer.draw(wanted, stream(workshop.seed, "replay", step))
        tasks = workshop.tasks(self.settings.split)
        chosen = in_epochs(tasks, workshop.seed, "play", self.played, total - wanted)
        fresh = workshop.play(chosen, step, "rollout")
        self.played += len(chosen)  # after playing, which may fail: then nothing was played
        self.buffer.add(fresh)
        return fresh + old

    def state_dict(self) -> dict[str, Any]:
        """Tasks played so far and the remembered groups."""
        return {"played": self.played, "groups": self.buffer.state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.played = int(state["played"])
        self.buffer.restore(state["groups"])


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
