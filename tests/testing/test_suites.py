"""Every suite accepts a correct part and names what is wrong with a broken one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import own_parts as own
import pytest
import torch

from selfdistill_cli import testing
from selfdistill_cli.core.types import Score
from selfdistill_cli.testing.expecting import same

SUITES = {
    own.OwnAdvantage: lambda make: testing.check_advantage(make, compares_siblings=True),
    own.OwnCredit: testing.check_credit,
    own.OwnCoefficient: testing.check_coefficient,
    own.OwnTerm: testing.check_term,
    own.OwnSource: testing.check_source,
    own.OwnSync: testing.check_sync,
    own.OwnEnv: testing.check_env,
    own.OwnReward: testing.check_reward,
    own.OwnEngine: testing.check_rollout_engine,
    own.OwnChat: testing.check_chat,
}


@pytest.mark.parametrize("part", SUITES, ids=lambda part: part.__name__)
def test_a_correct_part_passes(part):
    SUITES[part](part)


def in_place(self, group, sample):
    sample.token_ids[0] += 1
    return own.OwnAdvantage.fill(self, group, sample)


def everywhere(self, group, sample):
    return replace(sample, advantages=np.ones(len(sample.token_ids), dtype=np.float32))


def doubles(self, group, sample):
    filled = own.OwnAdvantage.fill(self, group, sample)
    return replace(filled, advantages=filled.advantages.astype(np.float64))


def reads_values(self, group, sample):
    return replace(sample, advantages=sample.values)


def random_advantage(self, group, sample):
    value = np.random.normal()
    return replace(sample, advantages=np.where(sample.action_mask, value, 0).astype(np.float32))


def rejected_as_zero(self, group):
    return {t.sibling: s.total or 0.0 for t, s in zip(group.trajectories, group.scores)}  # noqa: B905


def nan_times_mask(self, output, batch):
    return -(output.logprobs * batch.action_mask).sum(), {}


def mean_not_sum(self, output, batch):
    active = torch.where(batch.action_mask, output.logprobs, torch.zeros(()))
    return -active.sum() / batch.action_mask.sum().clamp(min=1), {}


def not_connected(self, output, batch):
    if not batch.action_mask.any():
        return torch.zeros(()), {}
    return own.OwnTerm.total(self, output, batch)


def empties_the_batch(self, output, batch):
    found = own.OwnTerm.total(self, output, batch)
    batch.advantages.zero_()
    return found


def reads_entropy(self, output, batch):
    return torch.where(batch.action_mask, output.entropy, 0.0).sum(), {}


def forgets(self, state):
    pass


def numpy_state(self):
    return {"memory": np.float64(self.memory), "set": {1}}


def copies_in_silence(self, copy, readings):
    copy.copy_student()
    return {}


def with_rejected(self, group):
    return replace(group, samples=group.samples + group.samples[:1]) if group.samples else group


def mutates_outcome(self, trajectory):
    trajectory.outcome["seen"] = True
    return own.OwnReward.score(self, trajectory)


def zero_on_failure(self, trajectory):
    return Score(total=0.0, success=0.0, parts={})


def percent(self, trajectory):
    found = own.OwnReward.score(self, trajectory)
    return replace(found, success=100 * found.success)


BROKEN = [
    (own.OwnAdvantage, {"fill": in_place}, "changed its input in place"),
    (own.OwnAdvantage, {"fill": everywhere}, "is not 0 at inactive positions"),
    (own.OwnAdvantage, {"fill": doubles}, "expected a float32 numpy array, got ndarray float64"),
    (own.OwnAdvantage, {"fill": reads_values}, "a sample has no advantages"),
    (own.OwnAdvantage, {"fill": random_advantage}, "gave two results for the same input"),
    (own.OwnAdvantage, {"totals": rejected_as_zero}, "changed the advantages of its siblings"),
    (own.OwnAdvantage, {"after_credit": None}, "'NoneType' object is not callable"),
    (own.OwnAdvantage, {"state_dict": lambda self: None}, "expected a dict"),
    (own.OwnCredit, {"load_state_dict": forgets}, "saved after step 1 and loaded into a new one"),
    (own.OwnCredit, {"state_dict": numpy_state}, "cannot be read with torch.load"),
    (own.OwnCredit, {"reweight": lambda self, groups, step: list(groups)}, "(groups, metrics)"),
    (
        own.OwnCredit,
        {"reweight": lambda self, groups, step: (list(groups), {"credit/x": float("nan")})},
        "the metric credit/x is nan",
    ),
    (
        own.OwnCredit,
        {"reweight": lambda self, groups, step: ([g for g in groups if g.samples], {})},
        "a group without samples stays in the list",
    ),
    (own.OwnCoefficient, {"load_state_dict": forgets}, "saved after step 1"),
    (own.OwnCoefficient, {"__call__": lambda self, step: None}, "expected a finite number"),
    (
        own.OwnCoefficient,
        {"observe": lambda self, measured, readings, synced: 0.5 * readings.reward},
        "unsupported operand",
    ),
    (own.OwnTerm, {"total": nan_times_mask}, "nan at inactive positions"),
    (own.OwnTerm, {"total": mean_not_sum}, "return a sum and its count, never a mean"),
    (own.OwnTerm, {"total": not_connected}, "not connected to the graph"),
    (own.OwnTerm, {"total": empties_the_batch}, "changed its input in place"),
    (own.OwnTerm, {"total": reads_entropy}, "NoneType"),
    (own.OwnTerm, {"count": lambda self, batch: -1.0}, "is negative"),
    (own.OwnTerm, {"weights": lambda self, groups: []}, "expected one row for each of"),
    (own.OwnSource, {"load_state_dict": forgets}, "saved after step 1"),
    (own.OwnSource, {"groups": lambda self, w, step: []}, "there are no groups"),
    (
        own.OwnSource,
        {"groups": lambda self, w, step: w.play(w.tasks("train"), 1, "own")},
        "gave the same tasks at steps 1 to 8",
    ),
    (own.OwnSync, {"after_step": copies_in_silence}, "copied fully at step 1, but synced is not"),
    (own.OwnSync, {"load_state_dict": forgets}, "saved after step 1"),
    (own.OwnEnv, {"hints": frozenset({"anser"})}, "are no kinds of hint"),
    (
        own.OwnEnv,
        {"tasks": lambda self, split: [own.OwnEnv.tasks(self, split)[0]] * 2},
        "two tasks have the same id",
    ),
    (
        own.OwnEnv,
        {"episode": lambda self, task, seed: own.OwnEpisode(np.random.randint(1000))},
        "two episodes with equal seed and actions went differently",
    ),
    (
        own.OwnEnv,
        {"step_many": lambda self, episodes, actions: []},
        "step_many says something else than step",
    ),
    (own.OwnReward, {"score": mutates_outcome}, "changed its input in place"),
    (own.OwnReward, {"score": zero_on_failure}, "the environment failed"),
    (own.OwnReward, {"score": percent}, "success is 100.0, expected 0 to 1"),
    (
        own.OwnEngine,
        {"random": lambda self, request: np.random.default_rng()},
        "equal seeds gave other tokens",
    ),
    (
        own.OwnEngine,
        {"random": lambda self, request: np.random.default_rng(0)},
        "other seeds gave the same tokens everywhere",
    ),
    (own.OwnChat, {"answer_ids": lambda self, text: self.encode(text)}, "does not end with one of"),
    (
        own.OwnChat,
        {"observation_ids": lambda self, messages, finished: self.prompt_ids(messages)},
        "the end-of-turn id comes first",
    ),
]


@pytest.mark.parametrize(("part", "changes", "message"), BROKEN)
def test_a_broken_part_is_named(part, changes, message):
    broken = type(f"Broken{part.__name__}", (part,), changes)
    with pytest.raises((AssertionError, TypeError)) as caught:
        SUITES[part](broken)
    assert message in str(caught.value)


@pytest.mark.parametrize("part", SUITES, ids=lambda part: part.__name__)
def test_a_part_without_methods_is_told_which(part):
    with pytest.raises(AssertionError, match=r"has no |is not False"):
        SUITES[part](type("Nothing", (), {"__call__": lambda self, step: 0.0}))


def test_equality_is_deep_and_exact():
    a = {"x": [np.array([1.0, np.nan]), torch.tensor([1.0])], "y": (1, "a")}
    assert same(a, {"x": [np.array([1.0, np.nan]), torch.tensor([1.0])], "y": (1, "a")})
    for other in (
        {**a, "y": (1, "b")},
        {**a, "y": [1, "a"]},
        {**a, "z": 0},
        {**a, "x": [np.array([1.0, np.nan], dtype=np.float32), torch.tensor([1.0])]},
        {**a, "x": [np.array([1.0, np.nan]), torch.tensor([1.0 + 1e-6])]},
    ):
        assert not same(a, other)
