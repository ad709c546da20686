"""Episodes of several attempts in a run: the ids that are learned are those that were sampled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from assembled import assembled, batches_of, environment, loss_of

from selfdistill_cli.batching.samples import samples_of
from selfdistill_cli.core.types import Group, Stop, Trajectory
from selfdistill_cli.training.judge import judge
from selfdistill_cli.training.run import Run

WORDS = ("method=grpo", "env.attempts=3", "rollout.max_turns=3", "method.group_size=4")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    root = tmp_path_factory.mktemp("attempts")
    with environment(root, *WORDS) as env, assembled(root, env, *WORDS) as run:
        yield run


@pytest.fixture(scope="module")
def groups(run: Run) -> list[Group]:
    return run.workshop.play(run.workshop.tasks("train")[:12], step=1, purpose="rollout")


def played(groups: list[Group]) -> list[Trajectory]:
    return [trajectory for group in groups for trajectory in group.trajectories]


def test_episodes_have_one_to_three_turns(groups: list[Group]) -> None:
    assert {len(trajectory.turns) for trajectory in played(groups)} == {1, 2, 3}
    for trajectory in played(groups):
        outcome = trajectory.outcome
        assert trajectory.stop is Stop.DONE
        assert outcome["attempts"] == len(trajectory.turns) == len(outcome["passed_by_attempt"])
        solved = [passed == outcome["total"] for passed in outcome["passed_by_attempt"]]
        assert not any(solved[:-1])
        assert solved[-1] or len(solved) == 3


def test_sampled_ids_are_trained_and_observations_are_not(run: Run, groups: list[Group]) -> None:
    for trajectory in played(groups):
        (sample,) = samples_of(trajectory)
        sampled = [i for turn in trajectory.turns for i in turn.generation.action_ids]
        assert sample.token_ids[sample.action_mask].tolist() == sampled
        for index, turn in enumerate(trajectory.turns):
            place = sample.turn_index == index
            assert sample.token_ids[place].tolist() == list(turn.generation.action_ids)
            assert np.array_equal(sample.sampled_logprobs[place], turn.generation.logprobs)
        between = sample.token_ids[sample.num_prompt_tokens :][
            ~sample.action_mask[sample.num_prompt_tokens :]
        ]
        said = run.workshop.chat.decode(between.tolist())
        assert said.count("Tests passed: ") == said.count("Try again.") == len(trajectory.turns) - 1


def test_the_student_scores_them_as_it_sampled_them(run: Run, groups: list[Group]) -> None:
    """The prompt of a later attempt is what the model saw: its log-probabilities are the same."""
    judged = judge(run, groups, step=1)
    samples = [s for g in judged.groups for s in g.samples if s.turn_index.max() == 2]
    assert samples
    (batch, *_) = batches_of(run, judged)
    output = run.engine.forward(batch, run.method.forward_needs)
    gap = (output.logprobs.detach() - batch.old_logprobs)[batch.action_mask].abs().max()
    assert float(gap) < 1e-4
    assert float(output.logprobs.detach()[~batch.action_mask].abs().max()) == 0.0
    for sample in samples:
        assert sample.advantages is not None
        assert not sample.advantages[~sample.action_mask].any()


def test_what_the_environment_says_carries_no_loss(run: Run, groups: list[Group]) -> None:
    """Advantages at observations would change the loss if those tokens were learned."""
    judged = judge(run, groups, step=1)
    batches = batches_of(run, judged)
    before = loss_of(run, batches[:1])
    for batch in batches[:1]:
        batch.advantages[~batch.action_mask] = 100.0
    assert loss_of(run, batches[:1]) == before
    run.policy.zero_grad()


def shortened(run: Run, tokens: int) -> list[Trajectory]:
    before = run.workshop.rollout_settings
    run.workshop.rollout_settings = replace(before, max_context_tokens=tokens)
    try:
        tasks = run.workshop.tasks("train")[:12]
        return played(run.workshop.play(tasks, step=1, purpose="rollout"))
    finally:
        run.workshop.rollout_settings = before


def test_an_episode_that_the_context_cuts_keeps_its_last_attempt(run: Run) -> None:
    found = shortened(run, 200)
    cut = [trajectory for trajectory in found if trajectory.stop is Stop.MAX_TOKENS]
    assert cut
    for trajectory in cut:
        outcome = trajectory.outcome
        assert len(trajectory.turns) == outcome["attempts"] < 3
        assert outcome["passed"] == outcome["passed_by_attempt"][-1] < outcome["total"]
        (score,) = run.workshop.reward.score_many([trajectory], step=1, learning=False)
        assert score.total == outcome["passed"] / outcome["total"]
