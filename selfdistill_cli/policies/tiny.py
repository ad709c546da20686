"""The embedded policy: a small Llama-style model (half a million parameters), made from nothing.

Its tokenizer is a byte-level BPE, so that it can encode any text, trained on text that the caller
gives. Both are saved in the Hugging Face layout and load with AutoTokenizer and
AutoModelForCausalLM like any other model.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.core.hints import TITLES

PAD, END = "<|pad|>", "<|end|>"
ROLES = {"system": "<|system|>", "user": "<|user|>", "assistant": "<|assistant|>"}
SPECIAL_TOKENS = (PAD, END, *ROLES.values())
NUM_BYTES = 256

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] not in ['system', 'user', 'assistant'] -%}"
    "{{- raise_exception('unknown role ' + message['role']) -}}"
    "{%- endif -%}"
    "{{- '<|' + message['role'] + '|>' + message['content'] + '<|end|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)


def build_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE of at most `vocab_size` entries; equal texts give equal tokenizers.

    Digits are single tokens and every space or line break before a word belongs to the word.
    Raises ConfigError if `vocab_size` cannot hold the bytes and the special tokens.
    """
    smallest = NUM_BYTES + len(SPECIAL_TOKENS)
    if vocab_size < smallest:
        raise ConfigError(
            f"vocab_size: found {vocab_size}, expected at least {smallest} "
            "(all bytes and the special tokens)"
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{N}"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    titles = [f"\n{title}\n" for title in TITLES.values()]
    tokenizer.train_from_iterator([*texts, *titles], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=list(ROLES.values()),
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )


def build_model(
    tokenizer: PreTrainedTokenizerFast,
    *,
    hidden_size: int,
    num_layers: int,
    num_heads: int,
    intermediate_size: int,
    max_length: int,
    seed: int,
) -> LlamaForCausalLM:
    """Return a float32 Llama with random weights drawn from `seed`; input and output embeddings
    are tied. The global random state of torch is left as it was.

    Raises ConfigError if the heads do not divide the hidden size into even parts.
    """
    if hidden_size % (2 * num_heads):
        raise ConfigError(
            f"num_heads: found {num_heads}, expected a number that divides hidden_size "
            f"{hidden_size} into even parts"
        )
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_hidden_layers=num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=num_heads,
        max_position_embeddings=max_length,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).float()


def save(path: Path, tokenizer: PreTrainedTokenizerFast, model: LlamaForCausalLM) -> None:
    """Write model and tokenizer to a folder in the Hugging Face layout."""
    path.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(path)
    model.save_pretrained(path)


def create(
    path: Path,
    texts: Iterable[str],
    *,
    vocab_size: int,
    hidden_size: int,
    num_layers: int,
    num_heads: int,
    intermediate_size: int,
    max_length: int,
    seed: int,
) -> None:
    """Build an untrained tiny policy and write it to the folder `path`."""
    tokenizer = build_tokenizer(texts, vocab_size)
    model = build_model(
        tokenizer,
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads,
        intermediate_size=intermediate_size,
        max_length=max_length,
        seed=seed,
    )
    save(path, tokenizer, model)
