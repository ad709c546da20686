"""One collection gives several updates: a checkpoint never falls among them."""

from __future__ import annotations

from pathlib import Path

import pytest
from assembled import assembled, environment

from selfdistill_cli.training.checkpoints import Checkpoints
from selfdistill_cli.training.loop import train
from selfdistill_cli.training.run import Run
from selfdistill_cli.training.state_compare import compare_runs

STEPS = 3
BUFFER = ("batch.epochs=2", "batch.mini_batches=3", f"run.max_steps={STEPS}", "checkpoint.keep=9",
          "batch.tasks_per_step=2", "method.group_size=4")  # fmt: skip
UPDATES = 6
METHODS = {
    "ppo": ("method=ppo",),
    "replay": ("method=step_kd", "method/source=replay"),
}


class Killed(BaseException):
    """Nothing may catch it, as nothing catches SIGKILL."""


def dies_in_update(run: Run, number: int) -> None:
    """Let the process end in the given update, counted over all steps, before it is applied."""
    step, done = run.engine.step, []

    def dying() -> float:
        done.append(1)
        if len(done) == number:
            raise Killed
        return step()

    run.engine.step = dying  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_dies_inside_a_buffer_plays_and_learns_it_again(tmp_path: Path, method: str):
    words = (*METHODS[method], *BUFFER)
    with environment(tmp_path, *words) as env:
        with assembled(tmp_path, env, *words, name="straight") as run:
            train(run)
        for number in (2, UPDATES + 3, 2 * UPDATES + UPDATES):
            name = f"killed_{number}"
            with assembled(tmp_path, env, *words, name=name) as run:
                dies_in_update(run, number)
                with pytest.raises(Killed):
                    train(run)
                done = (number - 1) // UPDATES
                assert run.checkpoints.steps() == list(range(1, done + 1))
            with assembled(tmp_path, env, *words, name=name) as run:
                train(run)
            found = compare_runs(tmp_path / "straight", tmp_path / name, STEPS)
            assert not any(found.values()), found


def test_every_checkpoint_holds_whole_buffers(tmp_path: Path):
    """A stop that is asked for in the middle of the updates waits for the last of them."""
    words = (*METHODS["ppo"], *BUFFER, "checkpoint.every=2")
    with environment(tmp_path, *words) as env:
        with assembled(tmp_path, env, *words) as run:
            step, done = run.engine.step, []

            def asking() -> float:
                done.append(1)
                run.interrupts.requested = len(done) >= 2
                return step()

            run.engine.step = asking  # pyright: ignore[reportAttributeAccessIssue]
            with pytest.raises(Exception, match="stopped after step 1 of 3"):
                train(run)
        with assembled(tmp_path, env, *words) as run:
            train(run)
            checkpoints: Checkpoints = run.checkpoints
        assert checkpoints.steps() == [1, 2, 3]
        for number in checkpoints.steps():
            state = checkpoints.named(str(number)).state()["engine"]["optimizer"]["state"]
            assert {int(entry["step"]) for entry in state.values()} == {number * UPDATES}
