"""Small random models of several families, for tests: real tokenizer, real template."""

from __future__ import annotations

import functools

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from selfdistill_cli.policies.causal import CausalPolicy
from selfdistill_cli.policies.chat import TemplateChat
from selfdistill_cli.policies.tiny import build_tokenizer

WORDS = ["def f(xs): return sum(x * 2 for x in xs)", "Write a function f.", "Tests passed: 2 of 3"]
FAMILIES = ("llama", "qwen2", "qwen3", "gpt2")


@functools.cache
def small_tokenizer():
    """A byte-level tokenizer of 300 entries with the embedded policy's template."""
    return build_tokenizer(WORDS, 300)


def small_model(family: str, hidden: int = 32, layers: int = 2, seed: int = 0):
    """A random causal language model; weights are scaled up so that sampling is not uniform."""
    torch.manual_seed(seed)
    size = {
        "vocab_size": len(small_tokenizer()),
        "max_position_embeddings": 256,
        "pad_token_id": 0,
        "bos_token_id": None,
        "eos_token_id": small_tokenizer().eos_token_id,
    }
    llama = {
        **size,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 48,
    }
    if family == "llama":
        model = LlamaForCausalLM(LlamaConfig(**llama, tie_word_embeddings=True))
    elif family == "qwen2":
        model = Qwen2ForCausalLM(Qwen2Config(**llama))
    elif family == "qwen3":
        model = Qwen3ForCausalLM(Qwen3Config(**llama, head_dim=8))
    else:
        model = GPT2LMHeadModel(GPT2Config(**size, n_embd=hidden, n_layer=layers, n_head=4))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(8.0)
    return model.eval()


def small_policy(family: str = "llama", **sizes: int) -> CausalPolicy:
    """A policy around `small_model`."""
    return CausalPolicy(small_model(family, **sizes), TemplateChat(small_tokenizer()))
