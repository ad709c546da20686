"""Key tokens and lines, from the sampled text to what is learned."""

from __future__ import annotations

import numpy as np
import pytest
from assembled import assembled, composed, environment

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.methods.arrays import all_samples
from selfdistill_cli.training.judge import judge
from selfdistill_cli.training.loop import take_step

KEYS = ["method=gear", "method.credit.targets=key_tokens", "method.credit.warmup_fits=1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the runs of this module lie."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def env(folder):
    """The code environment, started once."""
    with environment(folder) as env:
        yield env


def texts_of(run, sample, marks) -> list[str]:
    """The marked tokens as text."""
    return [run.policy.chat.decode([int(i)]).strip() for i in sample.token_ids[marks]]


def test_key_tokens_are_the_words_of_the_program(folder, env):
    with assembled(folder, env, *KEYS, name="keys") as run:
        groups = judge(run, run.method.source.groups(run.workshop, 1), 1).groups
        samples = all_samples(groups)
        assert all(not (s.key_tokens & ~s.action_mask).any() for s in samples)
        found = [texts_of(run, sample, sample.key_tokens) for sample in samples]
    assert {"f", "for", "return"} <= {word for words in found for word in words}
    solved = [s for g in groups for s in g.samples if g.scores[s.sibling].success >= 1.0]
    assert solved
    assert all(s.key_tokens.sum() >= 2 for s in solved), "a name and a return at least"


def test_the_head_is_fitted_to_key_tokens_alone(folder, env):
    with assembled(folder, env, *KEYS, name="fit") as run:
        groups = judge(run, run.method.source.groups(run.workshop, 1), 1).groups
        metrics = run.method.credit.after_step(groups, 1)
        assert 0 < metrics["credit/key_token_fraction"] < 0.5
        keys = {id(s): s.key_tokens for s in all_samples(groups)}
        hidden = np.concatenate([s.hidden[keys[id(s)]] for s in all_samples(groups)])
        head = run.method.credit.head
        values = hidden @ head.used["weight"].numpy().T + head.used["bias"].numpy()
        assert values.mean() > 0.3, "the reward of winners is near 1"


def test_a_run_with_key_tokens_trains(folder, env):
    with assembled(folder, env, *KEYS, "method.credit.ramp=1.0", name="train") as run:
        for step in (1, 2):
            take_step(run, step)
        groups = judge(run, run.method.source.groups(run.workshop, 3), 3)
    assert groups.metrics["credit/within_traj_std"] > 0


def test_lines_are_steps(folder, env):
    words = ["method=sspo", "method.credit.step_unit=line"]
    with assembled(folder, env, *words, name="lines") as run:
        judged = judge(run, run.method.source.groups(run.workshop, 1), 1)
        for sample in all_samples(judged.groups):
            ids = sample.token_ids[sample.action_mask]
            text = run.policy.chat.decode(ids.tolist())
            lines = [line for line in text.split("\n") if line] or [""]
            assert sample.line_starts.sum() == len(lines)
        assert judged.metrics["credit/steps_per_sample"] >= 2


def test_an_environment_without_key_tokens_is_told(folder, env, monkeypatch):
    from selfdistill_cli.envs.code.env import CodeEnv

    monkeypatch.delattr(CodeEnv, "key_spans")
    with pytest.raises(ConfigError, match=r"method\.credit\.targets.*key_tokens"):
        composed(folder, *KEYS, name="none")
