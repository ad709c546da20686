"""Controllers read what a run measured, move once a step, and forget at a full copy."""

from __future__ import annotations

import pytest
from assembled import assembled
from running import numbers

from selfdistill_cli.losses.schedules import PidState, pid_update, proportional_update
from selfdistill_cli.training.loop import train

GROUP = "method.group_size=4"
COEFFICIENT = "method.terms.distill.coefficient."


def lines_of(folder, env, name, *words):
    with assembled(folder, env, *words, GROUP, name=name) as run:
        train(run)
    return numbers(folder / name)


def test_pid_follows_its_own_term_and_forgets_at_a_full_copy(folder, env):
    lines = lines_of(
        folder, env, "pid", "method=bidirectional", "run.max_steps=4", "optim.lr=2e-3",
        "teacher=slow_copy_hinted", "method.sync.full_sync_every=2", COEFFICIENT + "kd=0.2",
    )  # fmt: skip
    state = PidState(beta=0.1)
    gains = {"target": 0.1, "kp": 0.1, "ki": 0.01, "kd": 0.2}
    bounds = {"beta_min": 1e-4, "beta_max": 10.0, "integral_max": 10.0}
    assert [line["teacher/synced"] for line in lines] == [0, 1, 0, 1]
    was_synced = False
    for line in lines:
        assert line["loss/coefficient_distill"] == pytest.approx(state.beta, rel=1e-12)
        state = pid_update(state, line["loss/distill"], was_synced, **gains, **bounds)
        was_synced = bool(line["teacher/synced"])  # the first reading after the copy forgets
    assert len({line["loss/coefficient_distill"] for line in lines}) > 2


def test_proportional_controller_follows_its_own_term(folder, env):
    lines = lines_of(
        folder, env, "proportional", "method=step_kd", "run.max_steps=3",
        "teacher=slow_copy_hinted",
        "method/coefficient@method.terms.distill.coefficient=proportional",
    )  # fmt: skip
    value = 0.1
    for line in lines:
        assert line["loss/coefficient_distill"] == pytest.approx(value, rel=1e-12)
        value = proportional_update(value, line["loss/distill"], 0.1, 1, 10)
    assert value != 0.1


def test_ramp_starts_at_the_plateau_of_the_reward(folder, env):
    ramp = "method.credit.ramp."
    lines = lines_of(
        folder, env, "plateau", "method=gear_plateau", "run.max_steps=6", ramp + "window=2",
        ramp + "patience=2", ramp + "min_gain=2.0", ramp + "steps=2",
    )  # fmt: skip
    # Windows are full from step 2 on; that one is the best, 3 and 4 are stale, so 5 ramps.
    ramps = [line["credit/ramp"] for line in lines]
    assert ramps == [0.0, 0.0, 0.0, 0.0, 0.5, 1.0]


def test_schedule_of_the_distillation_meets_its_ends(folder, env):
    lines = lines_of(
        folder, env, "linear", "method=step_kd", "run.max_steps=3", COEFFICIENT + "steps=3"
    )
    assert [line["loss/coefficient_distill"] for line in lines] == pytest.approx([0.1, 0.055, 0.01])
