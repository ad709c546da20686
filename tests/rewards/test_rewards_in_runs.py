"""Rewards in whole runs: memory across a kill, failures that stop, failures that do not."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from metric_docs import undocumented
from running import SMALL, final_files, finish, last_step, numbers, run, start, wait_until

from selfdistill_cli.tracking.metrics_file import read

DOCUMENT = (Path(__file__).parents[2] / "docs/metrics.md").read_text(encoding="utf-8")
NORMALIZED = (
    "reward=composite", "reward.components.tests.normalize=true",
    "reward.components.overlong.normalize=true", "reward.components.tests.clip=[-2,2]",
)  # fmt: skip


@pytest.mark.slow
def test_a_killed_run_with_a_normalizing_reward_equals_the_straight_one(tmp_path: Path) -> None:
    words = ["train", "method=grpo", *SMALL, *NORMALIZED, "run.max_steps=12", "checkpoint.every=5"]
    words.append("eval.every=2")  # evaluations between checkpoints leave no trace in the memory
    run(tmp_path, *words, "run.name=straight")
    killed = start(tmp_path, *words, "run.name=killed")
    wait_until(killed, lambda: last_step(tmp_path / "runs/killed") >= 6)
    killed.send_signal(signal.SIGKILL)
    assert finish(killed)[0] == -signal.SIGKILL
    assert last_step(tmp_path / "runs/killed") < 12
    assert "continuing after step" in run(tmp_path, *words, "run.name=killed")
    straight, continued = tmp_path / "runs/straight", tmp_path / "runs/killed"
    assert numbers(continued) == numbers(straight)
    assert final_files(continued) == final_files(straight)
    assert undocumented(read(straight / "metrics.jsonl")[-1], DOCUMENT) == []
    run(tmp_path, "eval", "straight", "checkpoint=latest")
    (found,) = (straight / "evaluations").glob("step_000012_*.json")
    again = json.loads(found.read_text())["mean_reward"]
    assert again == numbers(straight)[-1]["eval/reward"], "eval knows the normaliser's memory"
    means = [line["reward/mean"] for line in numbers(straight)[1:]]
    assert min(means) < 0 < max(means), "a normalised total is around 0, and stops no run"


FLAKY = '''
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from selfdistill_cli.core.settings import Settings
from selfdistill_cli.core.types import Score


@dataclass(frozen=True, kw_only=True)
class FlakySettings(Settings):
    """Fails at one step, as long as a file is there."""

    implementation: ClassVar[str] = "flaky:Flaky"

    step: int
    """The step."""
    gives: str
    """raise, or a number."""


class Flaky:
    def __init__(self, settings):
        self.settings = settings
        self.count = 0

    def score(self, trajectory):
        self.count += 1
        outcome = trajectory.outcome
        share = outcome["passed"] / outcome["total"]
        late = trajectory.policy_version == self.settings.step - 1
        if late and trajectory.sibling == 1 and Path("broken").exists():
            if self.settings.gives == "raise":
                raise ZeroDivisionError("my mistake")
            share = float(self.settings.gives)
        return Score(total=share, success=float(share == 1), parts={"share": share})

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]
'''


@pytest.fixture
def own(tmp_path: Path) -> list[str]:
    (tmp_path / "mine/conf/reward").mkdir(parents=True)
    (tmp_path / "mine/flaky.py").write_text(FLAKY)
    (tmp_path / "mine/conf/reward/flaky.yaml").write_text(
        "_target_: flaky.FlakySettings\nstep: 4\ngives: raise\n"
    )
    (tmp_path / "broken").touch()
    return ["train", "--config-dir", "mine/conf", "method=grpo", "reward=flaky", *SMALL,
            "run.max_steps=6", "checkpoint.every=50", "eval.every=0"]  # fmt: skip


def test_a_reward_that_stops_the_run_loses_nothing(tmp_path: Path, own: list[str]) -> None:
    stop = "guards.on_reward_error=abort"
    said = run(tmp_path, *own, stop, "run.name=r", expect=1)
    assert "the run failed: reward: reward failed at step 4 for task" in said
    assert "ZeroDivisionError: my mistake" in said
    assert "guards.on_reward_error=mask" in said
    assert "Traceback" not in said
    folder = tmp_path / "runs/r"
    assert last_step(folder) == 3
    assert (folder / "checkpoints/step_000003").is_dir(), "step 3 is kept, whatever `every` says"
    record = json.loads((folder / "reward_errors.jsonl").read_text().splitlines()[0])
    assert (record["step"], record["kind"], record["sibling"]) == (4, "exception", 1)
    assert record["text"]
    (tmp_path / "broken").unlink()
    assert "continuing after step 3" in run(tmp_path, *own, stop, "run.name=r")
    run(tmp_path, *own, stop, "run.name=straight")
    assert numbers(folder) == numbers(tmp_path / "runs/straight")
    assert final_files(folder) == final_files(tmp_path / "runs/straight")


@pytest.mark.parametrize(
    ("gives", "kind"), [("raise", "exception"), ("nan", "nan"), ("inf", "inf")]
)
def test_a_reward_that_fails_costs_its_own_trajectories(tmp_path, own, gives, kind) -> None:
    run(tmp_path, *own, f"reward.gives='{gives}'", "run.name=r")
    lines = read(tmp_path / "runs/r/metrics.jsonl")
    assert [line["reward/errors"] for line in lines] == [0, 0, 0, 4, 0, 0]
    assert lines[3][f"reward/errors/reward/{kind}"] == 4
    assert lines[3]["rollout/rejected"] == 4
    assert all(line["policy/grad_norm"] is not None for line in lines)
    assert undocumented(lines[3], DOCUMENT) == []


def test_changed_ratings_are_noticed_on_a_resume(tmp_path: Path) -> None:
    rated = tmp_path / "rated.jsonl"
    rated.write_text('{"task": "t", "text": "x", "score": 1}\n')
    words = ["train", "method=dapo", "reward=overlong", *SMALL, "run.name=r", "eval.every=0",
             "+reward/component@reward.components.people=recorded",
             "reward.components.people.path=rated.jsonl"]  # fmt: skip
    run(tmp_path, *words, "run.max_steps=2")
    rated.write_text('{"task": "t", "text": "x", "score": 0}\n')
    said = run(tmp_path, *words, "run.max_steps=3", expect=2)
    assert "reward.components.people.path" in said
