"""Text to tokens and back, by the model's own chat template.

Masks are never inferred from token ids: a padding id may equal an end-of-text id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from selfdistill_cli.core.errors import ConfigError
from selfdistill_cli.core.types import Message

USER, ANSWERS = Message(role="user", content="Q"), ("SAMPLEDTEXT", "OTHERTEXT")


def _control_tokens(tokenizer: Any) -> list[str]:
    """What the tokenizer reads as control, not as text, longest first."""
    added = (str(token) for token in tokenizer.added_tokens_decoder.values() if token.special)
    known = {*map(str, tokenizer.all_special_tokens), *added}
    return sorted((token for token in known if len(token) > 1), key=len, reverse=True) or ["$^"]


class TemplateChat:
    """Implements `core.protocols.Chat` on a Hugging Face tokenizer with a chat template.

    A later turn never renders the conversation again. `observation_ids` are the ids of what the
    template writes between an assistant's text and the next assistant's text; it is found by
    rendering a conversation whose assistant text is a marker and cutting after the marker. A
    template for which that text depends on what the assistant said is refused.
    """

    def __init__(self, tokenizer: Any, stop_ids: Iterable[int] = ()):
        """Wrap a tokenizer; `stop_ids` are those of the model's generation_config."""
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigError(
                "policy.path: the tokenizer has no chat template; expected one in its folder "
                "(chat_template.jinja or tokenizer_config.json). Set policy.chat_template to a "
                "Jinja file, or to `plain` for a base model."
            )
        self.tokenizer = tokenizer
        self._control_tokens = re.compile("|".join(map(re.escape, _control_tokens(tokenizer))))
        self.end_of_turn_id = self._find_end_of_turn()
        ends = {tokenizer.eos_token_id, self.end_of_turn_id, *stop_ids}
        self.stop_ids: frozenset[int] = frozenset(int(i) for i in ends if i is not None)
        self.boundary_ids = self._find_boundary()
        pad = tokenizer.pad_token_id
        self.pad_id = int(self.end_of_turn_id if pad is None else pad)

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """Ids of a conversation up to and including the assistant boundary."""
        return self._encode(self._render(messages, boundary=True))

    def observation_ids(self, messages: Sequence[Message], finished: bool) -> list[int]:
        """Ids between the agent's last token and its next turn.

        `finished`: the agent emitted a stop id itself; otherwise the end-of-turn id comes first.
        Raises ConfigError if the template is not prefix-stable.
        """
        tail, other = (self._tail(messages, answer, boundary=True) for answer in ANSWERS)
        if tail != other:
            raise ConfigError(
                "policy.chat_template: what the template writes after an assistant's turn depends "
                f"on what the assistant said ({tail!r} and {other!r}); expected a template that "
                "only appends. Use another template for environments with several turns."
            )
        end = self.tokenizer.convert_ids_to_tokens(self.end_of_turn_id)
        ids = self._encode(
            tail.lstrip().removeprefix(end) if tail.lstrip().startswith(end) else tail
        )
        return ids if finished else [self.end_of_turn_id, *ids]

    def answer_ids(self, text: str) -> list[int]:
        """Ids of a demonstrated answer, with the end-of-turn id."""
        return [*self._encode(self._harmless(text)), self.end_of_turn_id]

    def decode(self, ids: Sequence[int]) -> str:
        """Ids to text, without special tokens."""
        return str(
            self.tokenizer.decode(
                list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        )

    def _harmless(self, text: str) -> str:
        """The text with the tokenizer's control tokens broken by a space.

        An agent or a file can spell them with ordinary characters; encoded as they stand they
        would open turns that nobody took.
        """
        return self._control_tokens.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _render(self, messages: Sequence[Message], *, boundary: bool) -> str:
        harmless = [{**m, "content": self._harmless(m["content"])} for m in messages]
        return str(
            self.tokenizer.apply_chat_template(
                harmless,
                add_generation_prompt=boundary,
                tokenize=False,
            )
        )

    def _tail(self, messages: Sequence[Message], answer: str, *, boundary: bool) -> str:
        """What the template writes after an assistant's text."""
        assistant = Message(role="assistant", content=answer)
        text = self._render([USER, assistant, *messages], boundary=boundary)
        _, found, tail = text.partition(answer)
        if not found:
            raise ConfigError(
                "policy.chat_template: an assistant's text does not appear in what the template "
                "writes; expected a template that shows earlier assistant turns"
            )
        return tail

    def _find_boundary(self) -> tuple[int, ...]:
        """Ids with which every prompt ends, whatever was said before: they open an answer."""
        first, second = (
            self.prompt_ids([Message(role="user", content=text)]) for text in ("Q", "z!")
        )
        size = 0
        while size < min(len(first), len(second)) and first[-size - 1] == second[-size - 1]:
            size += 1
        return tuple(first[len(first) - size :])

    def _find_end_of_turn(self) -> int:
        """The first special token that the template writes after an assistant's text, else eos."""
        special = set(self.tokenizer.all_special_ids) | {
            index for index, token in self.tokenizer.added_tokens_decoder.items() if token.special
        }
        for index in self._encode(self._tail([], ANSWERS[0], boundary=False)):
            if index in special:
                return int(index)
        if self.tokenizer.eos_token_id is None:
            raise ConfigError(
                "policy.path: the chat template ends an assistant's turn with no special token "
                "and the tokenizer has no eos_token; expected one of them"
            )
        return int(self.tokenizer.eos_token_id)
