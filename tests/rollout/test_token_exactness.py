"""What is trained is what was sampled: every environment, two tokenizers, token by token."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from exact_episodes import (
    ENVS,
    KEY,
    QWEN_ROWS,
    TOKENIZERS,
    Planned,
    Recorder,
    chat_of,
    check_tokens,
    episodes,
    largest_difference,
    limits,
    plain_logprobs,
    plan_of,
    policy_of,
    seeds_of,
    tasks_of,
    valid_texts,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from qwen_vocabulary import qwen_tokenizer

from selfdistill_cli.batching.collate import collate
from selfdistill_cli.batching.samples import samples_of
from selfdistill_cli.core.protocols import StepResult
from selfdistill_cli.core.seeds import seed_for
from selfdistill_cli.core.types import Finish, Message, Stop, Task
from selfdistill_cli.rollout.in_process import InProcessRollout

TOLERANCE = 1e-4
ODD = "é\u0301 \U0001f642\U0001f469\u200d\U0001f467 日本\ufffd\u202e\x00\n\n\t"
TASK = Task(id="talk", messages=(Message(role="user", content="Talk."),))


@dataclass
class Talk:
    """An environment that says given texts, one a turn, and then ends."""

    texts: Sequence[str]
    name = "talk"
    hints: frozenset = frozenset()

    def episode(self, task: Task, seed: int) -> TalkEpisode:
        return TalkEpisode(iter(self.texts))


@dataclass
class TalkEpisode:
    texts: Any

    def step(self, action: str) -> StepResult:
        text = next(self.texts, None)
        if text is None:
            return StepResult(outcome={"success": 0.0})
        return StepResult(observation=(Message(role="user", content=text),), done=False)


def checked(env, name, limit, tasks, plan=None, temperature=1.0):
    """Play, check every episode's tokens; return episodes, their samples, the largest gap."""
    policy = policy_of(name)
    engine = Recorder(Planned(policy, InProcessRollout(limit, policy), plan or {}), {})
    found = episodes(env, policy, engine, limit, tasks, temperature=temperature)
    samples = []
    for trajectory in found:
        seeds = seeds_of(trajectory.task, trajectory.sibling, len(trajectory.turns))
        made = [engine.made[seed] for seed in seeds]
        parts = check_tokens(trajectory, policy.chat, made)
        assert len(parts) == 1 or limit.overflow == "drop_oldest", "ids are appended, never renewed"
        samples += parts
    assert len(engine.made) == sum(len(t.turns) for t in found), "nothing was sampled in vain"
    return found, samples, largest_difference(policy, samples, temperature)


def count_of(name: str) -> int:
    return 2 if name == "tiny" else 1


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("env", ENVS)
def test_odd_actions_in_every_environment(env, name):
    found, _, gap = checked(env, name, limits(), tasks_of(env, count_of(name)))
    assert max(len(t.turns) for t in found) >= 3
    finishes = {turn.generation.finish for t in found for turn in t.turns}
    assert finishes == {Finish.STOP, Finish.LENGTH}
    assert gap < TOLERANCE


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("env", ENVS)
def test_valid_actions_between_odd_ones_in_every_environment(env, name):
    tasks, limit = tasks_of(env, count_of(name)), limits(max_new_tokens=80, max_turns=6)
    plan = plan_of(env, policy_of(name), tasks, 2)
    assert plan, "there is a valid action"
    found, _, gap = checked(env, name, limit, tasks, plan)
    said = {turn.text for t in found for turn in t.turns}
    valid = {
        text for t in tasks for text in valid_texts(env, t, seed_for(*KEY, t.id, 0, "episode"))
    }
    assert said & valid
    assert any(t.outcome.get("success") or t.outcome.get("passed") for t in found) or env in (
        "search", "textgame", "gymnasium",
    )  # fmt: skip
    assert all(t.outcome.get("invalid_actions", 0) < len(t.turns) for t in found)
    assert gap < TOLERANCE


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("temperature", [0.6, 0.0])
def test_other_temperatures(name, temperature):
    _, _, gap = checked("gymnasium", name, limits(), tasks_of("gymnasium", 1), None, temperature)
    assert gap < TOLERANCE


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("env", ["code", "math"])
def test_a_turn_cut_at_every_position(env, name):
    policy = policy_of(name)
    (task,) = tasks_of(env, 1)
    said = valid_texts(env, task, 0)[0]
    ids = policy.chat.answer_ids(said + ("" if env == "code" else ODD))
    plan = {seed: ids for sibling in range(2) for seed in seeds_of(task, sibling, 2)}
    for length in range(1, len(ids) + 1):
        found, samples, gap = checked(
            env, name, limits(max_new_tokens=length, max_turns=2), [task], plan
        )
        whole = length == len(ids)
        for trajectory in found:
            first = trajectory.turns[0].generation
            assert list(first.action_ids) == ids[:length]
            assert first.finish is (Finish.STOP if whole else Finish.LENGTH)
        assert all(sample.action_mask.sum() in (length, 2 * length) for sample in samples)
        assert gap < TOLERANCE


@pytest.mark.parametrize("name", TOKENIZERS)
def test_short_sampled_turns(name):
    policy = policy_of(name)
    for length in range(1, 6):
        limit = limits(max_new_tokens=length, max_turns=3)
        found, _, gap = checked(Talk(["go on", ODD]), name, limit, [TASK])
        for turn in (turn for t in found for turn in t.turns):
            generation = turn.generation
            assert 1 <= len(generation.action_ids) <= length
            stopped = generation.action_ids[-1] in policy.chat.stop_ids
            assert (generation.finish is Finish.STOP) == stopped
        assert gap < TOLERANCE


@pytest.mark.parametrize("name", TOKENIZERS)
def test_empty_replies(name):
    """A stop id alone, and no id at all, as another engine may answer."""
    chat = chat_of(name)
    for replies in itertools.product([[], [chat.end_of_turn_id]], repeat=3):
        plan = {
            seed: reply
            for sibling in range(2)
            for seed, reply in zip(seeds_of(TASK, sibling, 3), replies, strict=True)
        }
        found, samples, gap = checked(Talk(["more", ""]), name, limits(), [TASK], plan)
        assert [turn.text for t in found for turn in t.turns] == [""] * 6
        assert [int(s.action_mask.sum()) for s in samples] == [sum(map(len, replies))] * 2
        assert gap < TOLERANCE


def ids_of(name: str):
    """Any id that the model can sample; special ones, stops and ids without text come up often."""
    chat = chat_of(name)
    rows = QWEN_ROWS if name == "qwen" else len(chat.tokenizer)
    odd = sorted({*chat.tokenizer.all_special_ids, *chat.stop_ids, chat.pad_id, rows - 1})
    odd += chat.tokenizer(ODD, add_special_tokens=False)["input_ids"]
    return st.lists(st.one_of(st.integers(0, rows - 1), st.sampled_from(odd)), max_size=8)


def talks(name: str):
    """Turns of ids, and what is said between them: any text, a template's own marks too."""
    marks = ["<|im_end|>", "<|im_start|>assistant\n", "<|end|>", "<|assistant|>", ODD, ""]
    texts = st.one_of(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=12), st.sampled_from(marks)
    )
    return st.tuples(st.lists(ids_of(name), min_size=1, max_size=4), st.lists(texts, max_size=4))


@pytest.mark.parametrize("name", TOKENIZERS)
@given(data=st.data())
@settings(max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck))
def test_any_ids_and_any_observations(name, data):
    turns, texts = data.draw(talks(name))
    seeds = [seeds_of(TASK, sibling, len(turns)) for sibling in range(2)]
    plan = {seed: ids for row in seeds for seed, ids in zip(row, turns, strict=True)}
    limit = limits(max_new_tokens=9, max_turns=len(turns))
    found, samples, gap = checked(Talk(texts), name, limit, [TASK], plan)
    played = turns[: len(found[0].turns)]
    assert [list(t.generation.action_ids) for t in found[0].turns] == played
    assert len(samples) == len(found) == 2
    assert gap < TOLERANCE


@pytest.mark.parametrize("name", TOKENIZERS)
def test_dropping_the_oldest_splits_into_samples_that_each_hold(name):
    texts = [f"Observation {i} of many: {ODD} and more is to be said." for i in range(9)]
    room = 220 if name == "tiny" else 160
    limit = limits(max_turns=10, max_context_tokens=room, overflow="drop_oldest")
    found, samples, gap = checked(Talk(texts), name, limit, [TASK])
    for trajectory in found:
        assert (len(trajectory.turns), trajectory.stop) == (10, Stop.DONE)
        assert len(samples_of(trajectory)) > 2
    assert all(len(sample.token_ids) <= room for sample in samples)
    assert gap < TOLERANCE


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("env", ["textgame", "gymnasium", "math"])
def test_dropping_the_oldest_in_environments(env, name):
    tasks = tasks_of(env, 1)
    chat = chat_of(name)
    room = len(chat.prompt_ids(tasks[0].messages)) + {"math": 80}.get(env, 200)
    limit = limits(max_turns=6, max_context_tokens=room, overflow="drop_oldest")
    found, samples, gap = checked(env, name, limit, tasks)
    if env != "math":
        assert len(samples) > len(found)
    assert gap < TOLERANCE


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("env", ENVS)
def test_canonical_turns_join_to_what_the_template_writes(env, name):
    """Where every turn is the tokenizer's own way of writing its text, both ways agree."""
    policy = policy_of(name)
    task = tasks_of(env, 1)[0]
    texts = valid_texts(env, task, seed_for(*KEY, task.id, 0, "episode"))
    plan = {
        seed: policy.chat.answer_ids(text)
        for sibling in range(2)
        for seed, text in zip(seeds_of(task, sibling, len(texts)), texts, strict=True)
    }
    limit = limits(max_new_tokens=100, max_turns=len(texts))
    found, _, _ = checked(env, name, limit, [task], plan)
    messages = list(task.messages)
    for turn, text in zip(found[0].turns, texts, strict=False):
        assert list(turn.prompt_ids) == policy.chat.prompt_ids(messages)
        assert turn.text == text
        messages += [Message(role="assistant", content=text), *turn.observation]
    assert len(found[0].turns) >= 2


def test_the_gradient_comes_from_sampled_tokens_alone():
    """Of the sum over all positions, against the plain pass over the sampled ones."""
    policy = policy_of("tiny")
    _, samples, _ = checked("gymnasium", "tiny", limits(), tasks_of("gymnasium", 1))
    bias = policy.unembedding()[1]
    assert bias is not None
    policy.score(collate(samples), frozenset()).logprobs.sum().backward()
    found = bias.grad.clone()
    policy.zero_grad()
    for sample in samples:
        ids = torch.tensor(sample.token_ids)[None]
        places = torch.tensor(np.flatnonzero(sample.action_mask))
        logits = policy.backbone(ids).logits[0, places - 1]
        torch.log_softmax(logits, -1).gather(1, ids[0, places][:, None]).sum().backward()
    torch.testing.assert_close(found, bias.grad, atol=1e-3, rtol=1e-4)
    policy.zero_grad()
    assert found.abs().max() > 0.1


def test_a_wrong_record_is_noticed():
    """The checks of this file fail where a token or a log-probability is off by one place."""
    policy = policy_of("tiny")
    found, samples, _ = checked("gymnasium", "tiny", limits(), tasks_of("gymnasium", 1))
    ids = samples[0].token_ids.tolist()
    places = np.flatnonzero(samples[0].action_mask)
    shifted = plain_logprobs(policy, ids, (places - 1).tolist())
    assert np.abs(shifted - samples[0].sampled_logprobs[places]).max() > TOLERANCE
    made = [turn.generation for turn in found[0].turns]
    with pytest.raises(AssertionError):
        check_tokens(found[0], policy.chat, made[::-1])


def test_the_vocabulary_is_qwens():
    tokenizer = qwen_tokenizer()
    assert len(tokenizer) == 151_669
    text = "<|im_start|>user\nHello, world! 2026<|im_end|>\n<think>"
    assert tokenizer(text)["input_ids"] == [
        151644, 872, 198, 9707, 11, 1879, 0, 220, 17, 15, 17, 21, 151645, 198, 151667,
    ]  # fmt: skip
    everything = "".join(chr(i) for i in [*range(32, 127), *range(0x391, 0x3AA), 0x4E2D, 0x1F642])
    ids = tokenizer(everything, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == everything
