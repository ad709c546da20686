"""How the slow copy follows, pauses and goes back; where samples come from."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from assembled import assembled
from running import final_files, numbers
from small_policies import small_policy

from selfdistill_cli.core.protocols import Readings
from selfdistill_cli.core.types import Group
from selfdistill_cli.methods.advantage import is_flat
from selfdistill_cli.methods.arrays import all_samples
from selfdistill_cli.methods.replay_buffer import ReplayBuffer
from selfdistill_cli.methods.settings import EmaSettings, GatedSettings, HardSettings
from selfdistill_cli.teachers.weight_copy import WeightCopy
from selfdistill_cli.training.judge import judge
from selfdistill_cli.training.loop import train

COMMON = {
    "unit": "step", "scope": "all", "lora_average": "factors",
    "pause_kl": None, "rollback_kl": None, "save_every": 0,
}  # fmt: skip
GROUP = "method.group_size=4"
REPLAY = ("method=step_kd", "method/source=replay", GROUP, "method.source.share=0.5")


def readings(step: int, kl: float | None = None, success: float | None = None) -> Readings:
    return Readings(step=step, losses={}, reward=None, teacher_kl=kl, success=success)


class Student:
    """A small policy that changes by a known amount, and its slow copy."""

    def __init__(self):
        self.policy = small_policy()
        self.copy = WeightCopy(self.policy.backbone)

    @torch.no_grad()
    def learn(self) -> None:
        for parameter in self.policy.parameters():
            parameter.add_(0.1)

    def slow(self) -> float:
        """Any one number of the copy."""
        return float(next(iter(self.copy.slow.values())).flatten()[0])


def build(settings):
    """The sync of some settings; every sync is built by its settings."""
    return settings.build()


@pytest.mark.parametrize("unit", ["step", "update"])
def test_moving_average_counts_its_unit_and_copies_fully_now_and_then(unit):
    student = Student()
    fields = {**COMMON, "unit": unit, "decay": 0.9, "full_sync_every": 3}
    sync = build(EmaSettings(**fields))
    start, distances, synced = student.copy.distance(), [], []
    assert start == 0.0
    for step in range(1, 5):
        student.learn()
        sync.after_update(student.copy)
        metrics = sync.after_step(student.copy, readings(step))
        distances.append(metrics["teacher/distance"])
        synced.append(sync.synced)
        sync.synced = False
    one = distances[0]
    assert one > 0
    assert distances[1] == pytest.approx(1.9 * one, rel=1e-3)
    assert distances[2] == 0.0
    assert distances[3] == pytest.approx(one, rel=1e-3)
    assert synced == [False, False, True, False]


def test_hard_copies_every_so_often():
    student, sync = Student(), build(HardSettings(**COMMON, every=2))
    moved = []
    for step in range(1, 5):
        student.learn()
        moved.append(sync.after_step(student.copy, readings(step))["teacher/distance"] == 0.0)
    assert moved == [False, True, False, True]


def test_pause_stops_following_until_the_divergence_falls():
    student = Student()
    sync = build(EmaSettings(**{**COMMON, "pause_kl": 0.5}, decay=0.5, full_sync_every=0))
    moved, before = [], student.slow()
    for step, kl in enumerate([0.9, 0.9, 0.1, None, 0.1], 1):
        student.learn()
        sync.after_step(student.copy, readings(step, kl=kl))
        moved.append(student.slow() != before)
        before = student.slow()
    # A reading decides about the next step; without one the copy follows.
    assert moved == [True, False, False, True, True]


def test_rollback_returns_to_the_copy_of_the_best_evaluation():
    student = Student()
    sync = build(EmaSettings(**{**COMMON, "rollback_kl": 1.0}, decay=0.5, full_sync_every=0))
    seen = []
    for step, (kl, success) in enumerate(
        [(2.0, None), (0.1, 0.4), (0.1, 0.3), (2.0, None), (0.1, None)], 1
    ):
        student.learn()
        metrics = sync.after_step(student.copy, readings(step, kl=kl, success=success))
        seen.append((metrics["teacher/rolled_back"], student.slow()))
    assert [rolled for rolled, _ in seen] == [0, 0, 0, 1, 0]  # at first there is no good copy
    assert seen[3][1] == seen[1][1], "the copy of step 2, the best evaluation"
    assert seen[4][1] != seen[3][1]


def test_gate_opens_after_wins_in_a_row_and_not_for_noise():
    student = Student()
    sync = build(GatedSettings(**COMMON, margin=0.1, patience=2))
    sync.start(0.5)
    opened = []
    for step, success in enumerate([0.55, 0.7, 0.5, 0.7, None, 0.7, 0.75], 1):
        student.learn()
        metrics = sync.after_step(student.copy, readings(step, success=success))
        opened.append(metrics["teacher/distance"] == 0.0)
        state = sync.state_dict()
        sync = build(GatedSettings(**COMMON, margin=0.1, patience=2))
        sync.load_state_dict(state)
    assert opened == [False, False, False, False, False, True, False]


def test_gate_in_a_run_compares_evaluations(folder, env):
    words = (
        "method=sft", "teacher=slow_copy", "method/sync=gated", "method.sync.margin=0.0",
        "method.sync.patience=1", "method.evaluate_teacher=true", "run.max_steps=6",
        "eval.every=1", "eval.num_tasks=16", "eval.samples_per_task=1",
        "optim.lr=1e-3", "batch.tasks_per_step=16",
    )  # fmt: skip
    with assembled(folder, env, *words, name="gated") as run:
        train(run)
    lines = numbers(folder / "gated")
    best = lines[0]["eval/success"]
    for line in lines[1:]:
        wins = line["eval/success"] > best
        assert line["teacher/synced"] == float(wins)
        best = line["eval/success"] if wins else best
        assert line["eval/teacher_success"] == best
    assert {line["teacher/synced"] for line in lines[1:]} == {0.0, 1.0}


def same(a: Group, b: Group) -> bool:
    """Whether two groups hold the same tokens, numbers and words."""

    def plain(value):
        if isinstance(value, np.ndarray):
            return value.dtype.str, value.tolist()
        if dataclasses.is_dataclass(value):
            return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value).__name__, [plain(item) for item in value]
        return value

    return plain(a) == plain(b)


def test_replay_keeps_what_sampled_and_drops_what_is_stale(folder, env, tmp_path):
    with assembled(folder, env, *REPLAY, "method.source.max_staleness=2", name="replay") as run:
        source, workshop, fresh = run.method.source, run.workshop, {}
        for step in range(1, 6):
            groups = source.groups(workshop, step)
            assert len(groups) == 4
            ages = [step - 1 - group.trajectories[0].policy_version for group in groups]
            assert ages[:2] == [0, 0]
            assert max(ages) <= 2
            assert (len([age for age in ages if age > 0]) == 2) == (step > 1)
            for group, age in zip(groups, ages, strict=True):
                key = group.task.id
                if age == 0:
                    fresh[key] = [s.sampled_logprobs for s in group.samples]
                    continue
                for sample, kept in zip(group.samples, fresh[key], strict=True):
                    assert (sample.sampled_logprobs == kept).all()
                    assert sample.hidden is None, "hidden states belong to weights that are gone"
            run.publish(step)
        torch.save(source.state_dict(), tmp_path / "state.pt")
        state = torch.load(tmp_path / "state.pt", weights_only=True)
        other = ReplayBuffer(64, 2)
        other.restore(state["groups"])
        assert len(other.groups) == len(source.buffer.groups) > 0
        pairs = zip(other.groups, source.buffer.groups, strict=True)
        assert all(same(one, two) for one, two in pairs)


def test_replayed_ratios_are_against_the_policy_that_sampled(folder, env):
    with assembled(folder, env, *REPLAY, name="ratios") as run:
        first = run.method.source.groups(run.workshop, 1)
        with torch.no_grad():
            for parameter in run.policy.parameters():
                parameter.mul_(1.01)
        run.publish(1)
        groups = run.method.source.groups(run.workshop, 2)
        judged = judge(run, groups, 2)
        replayed = [g for g in judged.groups if g.trajectories[0].policy_version == 0]
        assert replayed
        recorded = {g.task.id: g for g in first}
        for group in replayed:
            for sample, old in zip(group.samples, recorded[group.task.id].samples, strict=True):
                assert (sample.old_logprobs == old.sampled_logprobs).all()
                assert sample.hidden is not None
                assert not np.allclose(sample.hidden, old.hidden), "values are of today's weights"


def test_replay_resumes_exactly(folder, env):
    words = (*REPLAY, "checkpoint.keep=9")
    with assembled(folder, env, *words, "run.max_steps=4", name="straight") as run:
        train(run)
    for steps in (2, 4):
        with assembled(folder, env, *words, f"run.max_steps={steps}", name="parts") as run:
            train(run)
    assert numbers(folder / "parts") == numbers(folder / "straight")
    assert final_files(folder / "parts") == final_files(folder / "straight")


@pytest.mark.parametrize(("share", "played"), [(0.0, 0), (0.5, 2), (1.0, 4)])
def test_mixed_source_has_its_share_of_own_episodes(folder, env, share, played):
    words = ["method=gkd", f"method.source.on_policy={share}"]
    with assembled(folder, env, *words, name=f"mixed_{played}") as run:
        groups = [g for step in (1, 2) for g in run.method.source.groups(run.workshop, step)]
    own = [group for group in groups if group.trajectories]
    assert (len(own), len(groups)) == (2 * played, 8)
    assert len({group.task.id for group in own}) == 2 * played
    shown = [group for group in groups if not group.trajectories]
    assert all(s.action_mask.any() for s in all_samples(shown))


def test_dynamic_sampling_replaces_flat_groups_and_keeps_the_count(folder, env):
    replaced = 0
    with assembled(folder, env, "method=dapo", GROUP, name="dapo") as run:
        for step in range(1, 5):
            groups = run.method.source.groups(run.workshop, step)
            useful = [g for g in groups if g.samples and not is_flat(g)]
            assert sum(bool(g.samples) for g in groups) == 4
            assert len(groups) == 4 or any(is_flat(g) for g in groups)
            rounds = run.method.settings.source.max_rounds
            assert len(useful) == 4 or len(groups) > 4 * (rounds - 1) / rounds
            replaced += len(groups) - 4
            again = run.method.source.groups(run.workshop, step)
            assert [g.task.id for g in again] == [g.task.id for g in groups]
    assert replaced > 0
