"""What a small run allocates, counted byte for byte, beside what a plan says of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from allocations import peak_bytes
from assembled import assembled, composed
from small_policies import small_tokenizer
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from selfdistill_cli.batching.collate import collate
from selfdistill_cli.batching.samples import demonstration_sample
from selfdistill_cli.core.needs import DivergenceNeed
from selfdistill_cli.core.protocols import Env, GenerationRequest
from selfdistill_cli.core.types import Batch, ViewBatch
from selfdistill_cli.policies.causal import CausalPolicy
from selfdistill_cli.policies.chat import TemplateChat
from selfdistill_cli.training.planning.hardware import Hardware
from selfdistill_cli.training.planning.plan import Plan, make_plan
from selfdistill_cli.training.run import Run

ROWS, LENGTH, SAMPLED = 6, 192, 24
"""Of a micro-batch, and tokens that are sampled in the measurement."""


def make_model(
    folder: Path, family: str, *, hidden: int, layers: int, inner: int, vocabulary: int
) -> None:
    """A random model in a folder; the tokenizer uses a few of its entries."""
    size = {"vocab_size": vocabulary, "max_position_embeddings": 512, "bos_token_id": None,
            "pad_token_id": 0, "eos_token_id": 1}  # fmt: skip
    blocks = {"hidden_size": hidden, "num_hidden_layers": layers, "intermediate_size": inner,
              "num_attention_heads": 8}  # fmt: skip
    if family == "llama":
        model: Any = LlamaForCausalLM(LlamaConfig(**size, **blocks, num_key_value_heads=8))
    elif family == "qwen2":
        model = Qwen2ForCausalLM(Qwen2Config(**size, **blocks, num_key_value_heads=2))
    else:
        config = GPT2Config(**size, n_embd=hidden, n_layer=layers, n_head=8, n_inner=inner)
        model = GPT2LMHeadModel(config)
    CausalPolicy(model, TemplateChat(small_tokenizer())).save(folder)


def planned(root: Path, *words: str) -> Plan:
    """The plan of the settings that `measured` uses, on one CPU."""
    settings = composed(root, *sizes(), *words).settings
    return make_plan(settings, "off", Hardware(), on_gpu=False)


def sizes() -> Sequence[str]:
    return (
        f"batch.micro_batch_rows={ROWS}", f"rollout.max_context_tokens={LENGTH}",
        f"rollout.max_new_tokens={SAMPLED}", f"rollout.max_batch_rows={2 * ROWS}",
        "optim.warmup_steps=0",
    )  # fmt: skip


def measured(root: Path, env: Env, *words: str, name: str) -> dict[str, float]:
    """Bytes by part: weights, optimizer, copies, and the peaks of learning, updating, sampling."""
    with assembled(root, env, *sizes(), *words, name=name) as run:
        batch = _batch(run)
        _learn(run, batch)
        run.engine.step()
        learning = peak_bytes(lambda: _learn(run, batch))
        updating = peak_bytes(run.engine.step)
        gradients = sum(p.numel() * p.element_size() for p in _trained(run))
        head = run.policy.value_head
        value_head = [] if head is None else list(head.parameters())
        optimizer = run.engine.optimizer.state
        own = {id(p) for p in value_head}
        state = [x for p, s in optimizer.items() if id(p) not in own for x in s.values()]
        return {
            "weights": _bytes(run.policy.backbone.parameters()),
            "optimizer": _bytes(x for x in state if torch.is_tensor(x) and x.ndim),
            "slow copy": _bytes([] if run.slow_copy is None else run.slow_copy.slow.values()),
            "frozen teachers": _copies(run),
            "learn": learning,
            "update": gradients + updating,
            "act": peak_bytes(lambda: _sample(run)),
        }


def _trained(run: Run) -> Iterable[torch.Tensor]:
    return (p for p in run.policy.backbone.parameters() if p.requires_grad)


def _bytes(tensors: Iterable[torch.Tensor]) -> float:
    return float(sum(x.numel() * x.element_size() for x in tensors))


def _copies(run: Run) -> float:
    copies = {id(s.copy): s.copy for s in run.scorers.values() if hasattr(s, "copy")}
    copies.pop(id(run.slow_copy), None)
    return sum(_bytes(copy.slow.values()) for copy in copies.values())


def _batch(run: Run) -> Batch:
    """Full rows; every view keeps its hidden states where a term compares distributions."""
    rows = [demonstration_sample([9] * 8, [10] * (LENGTH - 8)) for _ in range(ROWS)]
    batch = collate(rows, view_names=())
    hidden = torch.zeros(ROWS, LENGTH, run.policy.hidden_size)
    views = {
        need.view: ViewBatch(
            logprobs=torch.zeros(ROWS, LENGTH), hidden=hidden, tops={}, layers={},
            unembedding=run.scorers[need.view].unembedding(),
        )
        for need in run.method.forward_needs
        if isinstance(need, DivergenceNeed)
    }  # fmt: skip
    return replace(batch, views=views)


def _learn(run: Run, batch: Batch) -> None:
    """Two micro-batches, so that gradients exist while activations do."""
    for last in (False, True):
        output = run.engine.forward(batch, run.method.forward_needs | {"entropy"})
        parts = [output.logprobs, output.entropy, output.values, *output.divergences.values()]
        loss = sum(part.mean() for part in parts if part is not None)
        run.engine.backward(loss, last=last)


def _sample(run: Run) -> None:
    group = run.settings.method.group_size
    prompts = [[9 + i // group] * (LENGTH - SAMPLED) for i in range(2 * ROWS)]
    requests = [GenerationRequest(prompt_ids=ids, seed=i) for i, ids in enumerate(prompts)]
    run.workshop.rollout.generate(requests, max_new_tokens=SAMPLED, temperature=1.0)
