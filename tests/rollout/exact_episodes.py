"""Episodes of every environment with real tokenizers, and what must hold of their tokens."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from envs import code_envs, math_envs, search_envs, text_games, tool_envs
from qwen_vocabulary import qwen_tokenizer
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from selfdistill_cli.batching.collate import collate
from selfdistill_cli.batching.samples import samples_of
from selfdistill_cli.core.seeds import seed_for
from selfdistill_cli.core.types import Finish, Generation, Sample, Task, Trajectory, Turn
from selfdistill_cli.envs.gymnasium.settings import GymnasiumSettings
from selfdistill_cli.policies.causal import CausalPolicy
from selfdistill_cli.policies.chat import TemplateChat
from selfdistill_cli.policies.huggingface import load_policy, shipped_tiny
from selfdistill_cli.rollout.episodes import play
from selfdistill_cli.rollout.in_process import InProcessRollout
from selfdistill_cli.rollout.settings import InProcessSettings

TOKENIZERS = ("tiny", "qwen")
ENVS = ("code", "math", "search", "tools", "textgame", "gymnasium")
KEY = (3, "rollout", 5)
GYM: dict[str, Any] = {
    "format": "tags", "max_steps": 6, "max_observation": 400, "instructions": None,
    "describe_tools": True, "show_choices": True, "id": "envs.guessing:make", "arguments": {},
    "request": "Play.", "success_reward": None, "train_tasks": 4, "held_out_tasks": 2,
}  # fmt: skip
QWEN_ROWS = 151_936
"""Rows of Qwen's unembedding: more than its tokenizer has tokens, so ids without text come up."""


def limits(**changes: Any) -> InProcessSettings:
    """Settings of the rollout with some changed."""
    base = {
        "max_new_tokens": 12, "temperature": 1.0, "max_turns": 4, "max_context_tokens": 3000,
        "max_live_tokens": 1_000_000, "overflow": "stop", "env_wall_s": 60.0, "env_cpu_s": 60.0,
        "max_batch_rows": 64, "compact_fraction": 0.25,
    }  # fmt: skip
    return InProcessSettings(**{**base, **changes})


@functools.cache
def chat_of(name: str) -> TemplateChat:
    """The chat of a tokenizer; for Qwen with the two stop ids of its generation_config."""
    if name == "tiny":
        return TemplateChat(AutoTokenizer.from_pretrained(shipped_tiny(), local_files_only=True))
    tokenizer = qwen_tokenizer()
    return TemplateChat(tokenizer, tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"]))


@functools.cache
def policy_of(name: str) -> CausalPolicy:
    """A small random model (Llama for the tiny tokenizer, Qwen3 for Qwen's) that says odd texts.

    Its ends of turns are made likelier, so that turns of all lengths come up, empty ones too.
    `shipped` is the embedded policy with its own weights.
    """
    if name == "shipped":
        return load_policy(shipped_tiny())
    torch.manual_seed(11)
    size = {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 4096,
        "pad_token_id": 0, "bos_token_id": None, "eos_token_id": None,
    }  # fmt: skip
    if name == "tiny":
        count = len(chat_of(name).tokenizer)
        model: Any = LlamaForCausalLM(LlamaConfig(**size, vocab_size=count))
    else:
        model = Qwen3ForCausalLM(Qwen3Config(**size, vocab_size=QWEN_ROWS, head_dim=8))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(8.0)
    return CausalPolicy(_eager_to_stop(model, chat_of(name)).eval(), chat_of(name))


def _eager_to_stop(model: Any, chat: TemplateChat) -> Any:
    """Give the unembedding a bias with which a stop id has a chance of about one in eight."""
    old = model.get_output_embeddings()
    new = torch.nn.Linear(old.in_features, old.out_features)
    with torch.no_grad():
        new.weight.copy_(old.weight)
        new.bias.zero_()
        spread = float(old.weight.norm(dim=1).square().mean()) / 2
        level = np.log(old.out_features / len(chat.stop_ids) / 8) + spread
        for index in chat.stop_ids:
            new.weight[index].zero_()
            new.bias[index] = level
    model.set_output_embeddings(new)
    return model


@functools.cache
def env_of(name: str) -> Any:
    """An environment with several turns; it is shared, so close nothing."""
    makers: Mapping[str, Callable[[], Any]] = {
        "code": lambda: code_envs.make_env(data=code_envs.FIXTURE, attempts=3),
        "math": lambda: math_envs.math_env(num_tasks=30, attempts=3, kinds=["columns"]),
        "search": lambda: search_envs.search(**search_envs.FULL),
        "tools": lambda: tool_envs.tools_env(
            **{**tool_envs.WRITING, "max_steps": 8, "describe_tools": False}
        ),
        "textgame": lambda: text_games.text_game(max_steps=24),
        "gymnasium": lambda: GymnasiumSettings(**GYM).build(),
    }
    return makers[name]()


def tasks_of(name: str, count: int) -> Sequence[Task]:
    """The first tasks; code has one of its own in several attempts."""
    found = env_of(name).tasks("test" if name == "code" else "train")
    return found[-count:] if name == "code" else found[:count]


def valid_texts(name: str, task: Task, seed: int) -> list[str]:
    """Texts of turns that the environment understands, the first ones of several."""
    if name == "code":
        return ["def double(x):\n    return x + 2", "def double(x):\n    return x * 2"]
    if name == "math":
        return ["so it is #### 0", f"#### {task.answer}"]
    if name == "gymnasium":
        return [f"<think>é?</think><action>do {n}</action>" for n in (1, 8, 4)]
    return env_of(name).expert(task, seed) or []


@dataclass
class Recorder:
    """An engine that keeps what another one made, turn by turn, by the seed of the request."""

    inner: Any
    made: dict[int, Generation]

    def generate(self, requests: Sequence[Any], **options: Any) -> list[Generation]:
        """Pass on, and note."""
        found = self.inner.generate(requests, **options)
        self.made.update({r.seed: g for r, g in zip(requests, found, strict=True)})
        return found


@dataclass
class Planned:
    """Says planned ids where there are some (by seed), cut to the limit; samples otherwise."""

    policy: CausalPolicy
    inner: InProcessRollout | None
    plan: Mapping[int, Sequence[int]]

    def generate(self, requests: Sequence[Any], **options: Any) -> list[Generation]:
        """Answer in the order of the requests."""
        free = [request for request in requests if request.seed not in self.plan]
        sampled = iter(self.inner.generate(free, **options) if self.inner and free else ())
        limit = options["max_new_tokens"]
        return [
            self._said(request.prompt_ids, list(self.plan[request.seed])[:limit])
            if request.seed in self.plan
            else next(sampled)
            for request in requests
        ]

    def _said(self, prompt_ids: Sequence[int], ids: list[int]) -> Generation:
        places = range(len(prompt_ids), len(prompt_ids) + len(ids))
        stopped = bool(ids) and ids[-1] in self.policy.chat.stop_ids
        return Generation(
            action_ids=ids,
            logprobs=plain_logprobs(self.policy, [*prompt_ids, *ids], places),
            finish=Finish.STOP if stopped else Finish.LENGTH,
        )


def seeds_of(task: Task, sibling: int, turns: int, key: Sequence[Any] = KEY) -> list[int]:
    """Seeds of an episode's requests, as `play` keys them."""
    return [seed_for(*key, task.id, sibling, turn) for turn in range(turns)]


def plan_of(name: str, policy: CausalPolicy, tasks: Sequence[Task], group: int) -> dict[int, Any]:
    """Every second turn, from the first or the second on, is one that the environment knows."""
    plan: dict[int, Any] = {}
    for task in tasks:
        for sibling in range(group):
            texts = valid_texts(name, task, seed_for(*KEY, task.id, sibling, "episode"))
            seeds = seeds_of(task, sibling, 2 * len(texts) + 1)[sibling % 2 :: 2]
            plan.update(zip(seeds, map(policy.chat.answer_ids, texts), strict=False))
    return plan


def episodes(
    name: Any, policy: CausalPolicy, engine: Any, settings: InProcessSettings,
    tasks: Sequence[Task], group: int = 2, **options: Any,
) -> list[Trajectory]:  # fmt: skip
    """Play them; one flat list."""
    env = name if not isinstance(name, str) else env_of(name)
    groups = play(
        engine, env, policy.chat, tasks, group, settings=settings,
        **{"seed_key": KEY, "policy_version": 0, **options},
    )  # fmt: skip
    return [trajectory for group in groups for trajectory in group]


@torch.no_grad()
def plain_logprobs(
    policy: CausalPolicy, ids: Sequence[int], places: Sequence[int], temperature: float = 1.0
) -> np.ndarray:
    """Log-probabilities of the ids at `places`, by the model's own forward pass over one row."""
    if not len(places):
        return np.zeros(0, dtype=np.float32)
    rows = torch.tensor([list(ids)])
    before = torch.tensor([place - 1 for place in places])
    logits = policy.backbone(rows, logits_to_keep=before).logits[0].float()
    chosen = torch.log_softmax(logits / temperature, -1)
    return chosen.gather(1, rows[0, before + 1][:, None])[:, 0].numpy()


def check_tokens(
    trajectory: Trajectory, chat: TemplateChat, made: Sequence[Generation]
) -> tuple[Sample, ...]:
    """Check ids, masks and places of an episode's samples against what the engine made."""
    assert [turn.generation for turn in trajectory.turns] == list(made)
    samples = samples_of(trajectory)
    trained = [int(i) for s in samples for i in s.token_ids[s.action_mask]]
    assert trained == [i for generation in made for i in generation.action_ids]
    turns = list(enumerate(trajectory.turns))
    for sample in samples:
        marked = np.full(len(sample.token_ids), -1)
        logprobs = np.zeros(len(sample.token_ids), dtype=np.float32)
        last: Turn | None = None
        while turns:
            index, turn = turns[0]
            start = len(turn.prompt_ids)
            if list(turn.prompt_ids) != sample.token_ids[:start].tolist():
                break
            if last is not None and start < len(last.prompt_ids) + len(last.generation.action_ids):
                break
            if last is not None:
                _check_between(last, turn, chat)
            place = slice(start, start + len(turn.generation.action_ids))
            marked[place], logprobs[place] = index, turn.generation.logprobs
            last = turns.pop(0)[1]
        assert last is not None, "every sample has a turn of its own"
        assert len(marked) == len(last.prompt_ids) + len(last.generation.action_ids)
        np.testing.assert_array_equal(sample.turn_index, marked)
        np.testing.assert_array_equal(sample.action_mask, marked >= 0)
        np.testing.assert_array_equal(sample.sampled_logprobs, logprobs)
    assert not turns, "every turn is in a sample"
    return samples


def broken(text: str, chat: TemplateChat) -> str:
    """The text with a space in every control token that it spells."""
    tokens = [str(t) for t in chat.tokenizer.added_tokens_decoder.values() if t.special]
    pattern = "|".join(map(re.escape, sorted(tokens, key=len, reverse=True)))
    return re.sub(pattern, lambda found: f"{found[0][:1]} {found[0][1:]}", text)


def _check_between(last: Turn, turn: Turn, chat: TemplateChat) -> None:
    """What stands between two turns is the observation as the template writes it, and no more."""
    between = list(turn.prompt_ids)[len(last.prompt_ids) + len(last.generation.action_ids) :]
    if last.generation.finish is Finish.LENGTH:
        assert between.pop(0) == chat.end_of_turn_id
    start, end, answer = (
        ("<|user|>", "<|end|>", "<|assistant|>")
        if chat.tokenizer.convert_tokens_to_ids("<|im_start|>") is None
        else ("\n<|im_start|>user\n", "<|im_end|>", "\n<|im_start|>assistant\n")
    )
    texts = [broken(message["content"], chat) for message in last.observation]
    said = "".join(f"{start}{text}{end}" for text in texts)
    expected = chat.tokenizer(said + answer, add_special_tokens=False)["input_ids"]
    assert between == expected


def largest_difference(
    policy: CausalPolicy, samples: Sequence[Sample], temperature: float = 1.0
) -> float:
    """Between recorded and recomputed log-probabilities; the padded scoring pass agrees too."""
    worst = 0.0
    for sample in samples:
        places = np.flatnonzero(sample.action_mask).tolist()
        again = plain_logprobs(policy, sample.token_ids.tolist(), places, temperature)
        recorded = sample.sampled_logprobs[sample.action_mask]
        worst = max(worst, float(np.abs(again - recorded).max(initial=0.0)))
    policy.temperature = temperature
    with torch.no_grad():
        scored = policy.score(collate(samples), frozenset()).logprobs.numpy()
    for row, sample in zip(scored, samples, strict=True):
        at = row[: len(sample.token_ids)]
        assert not at[~sample.action_mask].any(), "an observation has no log-probability"
        assert not row[len(sample.token_ids) :].any()
        worst = max(worst, float(np.abs(at - sample.sampled_logprobs).max()))
    return worst
