"""The embedded policy's tokenizer and model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.policies import tiny

TEXTS = [
    f"Write f(xs): keep numbers above {k}, return the sum.\n"
    f"def f(xs):\n    return sum(x for x in xs if x > {k})"
    for k in range(10)
]
SHAPE = {
    "hidden_size": 16,
    "num_layers": 2,
    "num_heads": 2,
    "intermediate_size": 32,
    "max_length": 64,
}
TOKENIZER = tiny.build_tokenizer(TEXTS, 320)
DIALOGUE = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Write f."},
    {"role": "assistant", "content": "def f(xs):"},
    {"role": "user", "content": "Again."},
]


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=40))
def test_any_text_survives_encoding(text: str):
    ids = TOKENIZER(text)["input_ids"]
    assert TOKENIZER.decode(ids) == text


def test_equal_texts_give_equal_tokenizers_of_the_asked_size():
    again = tiny.build_tokenizer(TEXTS, 320)
    assert again.get_vocab() == TOKENIZER.get_vocab()
    assert len(again) <= 320
    assert len(tiny.build_tokenizer(TEXTS, 300)) == 300


def test_digits_are_single_tokens_and_words_are_whole():
    tokens = [TOKENIZER.decode([i]) for i in TOKENIZER("return sum(x + 123)")["input_ids"]]
    assert tokens[-4:] == ["1", "2", "3", ")"]
    assert " return" in TOKENIZER.decode(TOKENIZER(" return")["input_ids"])
    assert len(TOKENIZER(" return")["input_ids"]) == 1


def test_too_small_a_vocabulary_is_a_config_error():
    with pytest.raises(ConfigError, match="expected at least 261"):
        tiny.build_tokenizer(TEXTS, 200)


def test_template_marks_every_turn_and_opens_the_answer():
    text = TOKENIZER.apply_chat_template(DIALOGUE, tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|system|>Be brief.<|end|><|user|>Write f.<|end|><|assistant|>def f(xs):<|end|>"
        "<|user|>Again.<|end|><|assistant|>"
    )
    closed = TOKENIZER.apply_chat_template(DIALOGUE, tokenize=False)
    assert text == closed + "<|assistant|>"


def test_prefix_of_a_dialogue_is_a_prefix_of_its_ids():
    whole = TOKENIZER.apply_chat_template(DIALOGUE)["input_ids"]
    first = TOKENIZER.apply_chat_template(DIALOGUE[:2], add_generation_prompt=True)["input_ids"]
    assert whole[: len(first)] == first


def test_unknown_role_is_refused():
    with pytest.raises(Exception, match="unknown role tool"):
        TOKENIZER.apply_chat_template([{"role": "tool", "content": "x"}], tokenize=False)


def test_saved_policy_loads_with_the_auto_classes(tmp_path: Path):
    tiny.create(tmp_path, TEXTS, vocab_size=320, seed=3, **SHAPE)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    again = tiny.build_model(TOKENIZER, seed=3, **SHAPE)
    ids = tokenizer.apply_chat_template(
        DIALOGUE, add_generation_prompt=True, return_tensors="pt"
    )["input_ids"]  # fmt: skip
    assert ids.tolist()[0] == TOKENIZER.apply_chat_template(
        DIALOGUE, add_generation_prompt=True
    )["input_ids"]  # fmt: skip
    torch.testing.assert_close(model(ids).logits, again(ids).logits)
    assert model.config.eos_token_id == tokenizer.eos_token_id
    assert tokenizer.eos_token == "<|end|>"
    assert tokenizer.pad_token == "<|pad|>"
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id


def test_weights_follow_the_seed_and_leave_the_random_state_alone():
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    first = tiny.build_model(TOKENIZER, seed=1, **SHAPE)
    assert torch.equal(torch.rand(3), expected)
    second = tiny.build_model(TOKENIZER, seed=1, **SHAPE)
    other = tiny.build_model(TOKENIZER, seed=2, **SHAPE)
    weights = [model.lm_head.weight for model in (first, second, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_heads_must_divide_the_hidden_size():
    with pytest.raises(ConfigError, match="num_heads: found 3"):
        tiny.build_model(TOKENIZER, seed=0, **{**SHAPE, "num_heads": 3})
