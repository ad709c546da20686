"""The rollout records exactly what it sampled, whatever else is in the batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_policies import FAMILIES, small_policy

from selfdistill_cli.batching.collate import collate
from selfdistill_cli.batching.samples import samples_of
from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.core.protocols import GenerationRequest
from selfdistill_cli.core.types import Finish, Stop, Task, Trajectory, Turn
from selfdistill_cli.rollout.in_process import InProcessRollout
from selfdistill_cli.rollout.sampling import choose
from selfdistill_cli.rollout.settings import InProcessSettings

MESSAGES = [
    [{"role": "user", "content": "Write a function f."}],
    [{"role": "user", "content": "f?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Tests passed: 2"}],
]


def engine(policy, rows=64, compact=0.25):
    settings = InProcessSettings(
        max_new_tokens=16,
        temperature=1.0,
        max_turns=1,
        max_context_tokens=128,
        max_live_tokens=100_000,
        overflow="stop",
        env_wall_s=30.0,
        env_cpu_s=30.0,
        max_batch_rows=rows,
        compact_fraction=compact,
    )
    return InProcessRollout(settings, policy)


def requests(policy, group=4):
    return [
        GenerationRequest(prompt_ids=policy.chat.prompt_ids(messages), seed=100 * i + sibling)
        for i, messages in enumerate(MESSAGES)
        for sibling in range(group)
    ]


def with_many_stops(policy, fraction=0.1):
    """Make a share of the vocabulary stop ids, so that rows end at different lengths."""
    count = int(len(policy.chat.tokenizer) * fraction)
    policy.chat.stop_ids = frozenset(range(20, 20 + count))
    return policy


def sample_of(request, generation):
    turn = Turn(prompt_ids=request.prompt_ids, generation=generation, text="")
    task = Task(id="t", messages=())
    (sample,) = samples_of(
        Trajectory(
            task=task, sibling=0, turns=(turn,), stop=Stop.DONE, outcome={}, policy_version=0
        )
    )
    return sample


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("temperature", [1.0, 0.7, 0.0])
def test_recorded_logprobs_and_hidden_equal_scoring(family, temperature):
    policy = with_many_stops(small_policy(family))
    asked = requests(policy)
    made = engine(policy).generate(
        asked, max_new_tokens=16, temperature=temperature, with_hidden=True
    )
    samples = [sample_of(r, g) for r, g in zip(asked, made, strict=True)]
    policy.temperature = temperature
    output = policy.score(collate(samples), frozenset({"hidden"}))
    lengths = {len(g.action_ids) for g in made}
    assert len(lengths) > (2 if temperature else 0), "different lengths, so rows were dropped"
    for row, sample in enumerate(samples):
        length = len(sample.token_ids)
        scored = output.logprobs[row, :length].detach().numpy()
        np.testing.assert_allclose(scored, sample.sampled_logprobs, atol=1e-5)
        hidden = output.hidden[row, :length].detach().numpy()
        np.testing.assert_allclose(hidden, sample.hidden, atol=1e-4)
        assert np.abs(sample.hidden[sample.action_mask]).sum() > 0


@pytest.mark.parametrize(("rows", "compact"), [(64, 0.01), (64, 1.0), (3, 0.25), (1, 0.25)])
def test_tokens_do_not_depend_on_the_batch(rows, compact):
    policy = with_many_stops(small_policy())
    asked = requests(policy)
    expected = engine(policy).generate(asked, max_new_tokens=16, temperature=1.0)
    other = engine(policy, rows, compact).generate(asked, max_new_tokens=16, temperature=1.0)
    assert [g.action_ids for g in other] == [g.action_ids for g in expected]
    backwards = engine(policy).generate(asked[::-1], max_new_tokens=16, temperature=1.0)[::-1]
    assert [g.action_ids for g in backwards] == [g.action_ids for g in expected]
    shorter = engine(policy).generate(asked, max_new_tokens=5, temperature=1.0)
    assert [g.action_ids for g in shorter] == [g.action_ids[:5] for g in expected]


def test_rows_end_with_a_stop_id_or_at_the_limit():
    policy = with_many_stops(small_policy(), 0.05)
    made = engine(policy).generate(requests(policy, 8), max_new_tokens=6, temperature=1.0)
    assert {g.finish for g in made} == {Finish.STOP, Finish.LENGTH}
    for generation in made:
        stops = [i in policy.chat.stop_ids for i in generation.action_ids]
        assert not any(stops[:-1])
        assert stops[-1] == (generation.finish is Finish.STOP)
        if generation.finish is Finish.LENGTH:
            assert len(generation.action_ids) == 6
        assert len(generation.logprobs) == len(generation.action_ids)


def test_greedy_takes_the_likeliest_id_and_equals_a_plain_loop():
    policy = small_policy("qwen2")
    request = requests(policy, 1)[0]
    (made,) = engine(policy).generate([request], max_new_tokens=8, temperature=0.0)
    ids = list(request.prompt_ids)
    for _ in made.action_ids:
        logits = policy.backbone(torch.tensor([ids])).logits[0, -1]
        ids.append(int(logits.argmax()))
    assert made.action_ids == ids[len(request.prompt_ids) :]


def test_sampling_follows_the_distribution_and_skips_impossible_ids():
    logits = torch.tensor([[0.0, -torch.inf, 1.0, -1.0, -torch.inf]])
    uniforms = (torch.arange(20000, dtype=torch.float64) + 0.5) / 20000
    ids, logprobs = choose(logits.expand(20000, -1), uniforms, 0.5)
    probabilities = torch.softmax(logits[0] / 0.5, -1)
    counts = torch.bincount(ids, minlength=5) / 20000
    torch.testing.assert_close(counts, probabilities, atol=1e-3, rtol=0)
    torch.testing.assert_close(logprobs, probabilities.log()[ids])
    edge, _ = choose(logits, torch.tensor([1 - 2**-53], dtype=torch.float64), 1.0)
    assert int(edge) == 3
    first, _ = choose(torch.tensor([[-torch.inf, 0.0]]), torch.zeros(1, dtype=torch.float64), 1.0)
    assert int(first) == 1


def test_modes_of_modules_and_gradients_survive():
    policy = small_policy()
    policy.train()
    policy.backbone.model.layers[0].eval()
    before = [m.training for m in policy.modules()]
    engine(policy).generate(requests(policy, 1), max_new_tokens=2, temperature=1.0)
    assert [m.training for m in policy.modules()] == before
    hidden = policy.hidden_states(torch.tensor([[5, 6, 7]]), None)
    hidden.sum().backward()
    assert next(policy.parameters()).grad is not None


def test_no_requests_and_too_long_a_prompt():
    policy = small_policy()
    assert engine(policy).generate([], max_new_tokens=2, temperature=1.0) == []
    request = GenerationRequest(prompt_ids=[5] * 250, seed=0)
    with pytest.raises(ConfigError, match=r"rollout\.max_new_tokens=10.*250 tokens.*256"):
        engine(policy).generate([request], max_new_tokens=10, temperature=1.0)
