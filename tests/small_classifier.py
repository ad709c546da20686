"""A tiny random sequence classifier with a tokenizer of its own, saved to a folder."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789?()=:+-*"


def small_classifier(folder: Path, num_labels: int, seed: int = 0) -> Path:
    """Write a classifier that reads letters one by one; return the folder."""
    vocabulary = {token: i for i, token in enumerate(["[PAD]", "[UNK]", *LETTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=64
    )
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=512, num_labels=num_labels,
        initializer_range=0.5,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder
