"""Characters and tokens: every token gets its part of the text, without encoding again."""

from __future__ import annotations

import random

import pytest
from small_policies import small_tokenizer

from selfdistill_cli.batching.spans import character_ends, first_tokens_of_lines, tokens_in
from selfdistill_cli.policies.chat import TemplateChat

TEXTS = (
    "def f(x):\n    return x + 1\n",
    "",
    "\n\n",
    "def größe(ä):\n    return '😀' * 3  # 中文\n",
    "    for  i in x :\n\twhile True:\r\n  pass",
)


@pytest.fixture(scope="module")
def chat():
    """Byte-level, of 300 entries: most characters beyond ASCII take several tokens."""
    return TemplateChat(small_tokenizer())


@pytest.mark.parametrize("text", TEXTS)
def test_ends_are_those_of_the_decoded_prefix(chat, text):
    ids = chat.answer_ids(text)
    ends = character_ends(ids, chat.decode)
    whole = chat.decode(ids)
    assert ends == sorted(ends)
    assert not ends or ends[-1] == len(whole)
    for i in range(len(ids)):
        prefix = chat.decode(ids[: i + 1])
        if not prefix.endswith("\ufffd"):
            assert whole[: ends[i]] == prefix


def test_random_ids_never_fail_and_never_pass_the_text(chat):
    generator = random.Random(0)
    size = len(chat.tokenizer)
    for _ in range(30):
        ids = [generator.randrange(size) for _ in range(generator.randrange(40))]
        ends = character_ends(ids, chat.decode)
        assert len(ends) == len(ids)
        assert ends == sorted(ends)


def test_a_token_is_in_a_span_if_a_character_is():
    ends = [3, 3, 7, 9]  # the second token has no text of its own
    assert tokens_in([(4, 5)], ends) == [False, False, True, False]
    assert tokens_in([(2, 4)], ends) == [True, False, True, False]
    assert tokens_in([(3, 3)], ends) == [False, False, False, False]
    assert tokens_in([], ends) == [False] * 4


def test_lines_start_where_their_first_token_is():
    pieces = ["def f(", "x):", "\n", "    y", " = 1", "\n    ", "return y", "", ":\n\n", "z"]
    ends = [sum(map(len, pieces[: i + 1])) for i in range(len(pieces))]
    found = first_tokens_of_lines("".join(pieces), ends)
    assert [i for i, first in enumerate(found) if first] == [0, 3, 5, 9]
